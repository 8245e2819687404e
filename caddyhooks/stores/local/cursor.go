package local

import "strconv"

// ChangesPage is after how many bytes of changes of the settings a page ends.
const ChangesPage = 4 << 20

// Cursor is the place of a number in a list, for callers to come back to.
func Cursor(n uint64) string { return strconv.FormatUint(n, 10) }

// ParseCursor reads a cursor in the one form that is given out.
func ParseCursor(text string) (n uint64, ok bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil && Cursor(n) == text
}
