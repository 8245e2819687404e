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
