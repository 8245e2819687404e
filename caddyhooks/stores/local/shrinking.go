package local

// shrinkAbove is how large a map or a heap must have been for its memory to matter.
const shrinkAbove = 4096

// shrunk is a map after something was deleted from it. Maps never become smaller, so one that was much larger once is
// copied. most is how large it was.
func shrunk[K comparable, V any](m map[K]V, most *int) map[K]V {
	*most = max(*most, len(m))
	if *most <= shrinkAbove || len(m) > *most/8 {
		return m
	}
	*most = len(m)
	small := make(map[K]V, len(m))
	for key, value := range m {
		small[key] = value
	}
	return small
}
