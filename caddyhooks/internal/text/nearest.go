package text

import (
	"strings"
)

// Nearest returns the word that was probably meant, "" if none is near. Case does not count.
func Nearest(written string, words []string) (meant string) {
	const longest = 40
	if written == "" || len(written) > longest {
		return ""
	}
	written = strings.ToLower(written)
	least := 1 + min(2, len(written)/3) // a short word is near to others by chance
	for _, word := range words {
		if d := distance(written, strings.ToLower(word)); d < least {
			meant, least = word, d
		}
	}
	return meant
}

// distance is the number of letters to add, leave out, change or swap with their neighbour to make b of a.
func distance(a, b string) int {
	before, last := []int(nil), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			changed := 1
			if a[i] == b[j] {
				changed = 0
			}
			row[j+1] = min(last[j]+changed, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
