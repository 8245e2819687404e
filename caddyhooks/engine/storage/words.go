package storage

import (
	"slices"
	"strings"
)

// HaveAll reports whether each of some words, in small letters, is in one of the texts, whatever its case there. The texts are changed.
func HaveAll(texts, words []string) bool {
	for i := range texts {
		texts[i] = strings.ToLower(texts[i])
	}
	for _, word := range words {
		if !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(text, word) }) {
			return false
		}
	}
	return true
}
