package usage

import "strconv"

// Rest is what is left of a total without its parts. It is nil if nobody knows: the parts are more than the total, say.
func Rest(total Number, parts ...Number) Number {
	whole, ok := total.tokens()
	if total == nil || !ok {
		return total
	}
	n, ok := Plus(parts...).tokens()
	if Plus(parts...) != nil && !ok || n > whole {
		return nil
	}
	return strconv.AppendInt(nil, whole-n, 10)
}

// RestOfCost is a cost without the part of it that was known before. It is nil if nobody knows, as with Rest.
func RestOfCost(total, before Number) Number {
	whole, err := strconv.ParseFloat(string(total), 64)
	switch {
	case total == nil || before == nil:
		return nil
	case err != nil:
		return total
	}
	part, err := strconv.ParseFloat(string(before), 64)
	if err != nil || part > whole {
		return nil
	}
	return strconv.AppendFloat(nil, whole-part, 'g', -1, 64)
}
