package flags

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// CompleteWords offers words that are always the same.
func CompleteWords[Word ~string](words ...Word) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		offered := make([]cobra.Completion, len(words))
		for i, word := range words {
			offered[i] = string(word)
		}
		return BeginningWith(offered, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteOne completes the first argument, and no other.
func CompleteOne(first cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return first(cmd, args, typed)
	}
}

// CompleteAny completes a word that may be of several kinds.
func CompleteAny(kinds ...cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) (words []cobra.Completion, _ cobra.ShellCompDirective) {
		for _, kind := range kinds {
			more, _ := kind(cmd, args, typed)
			words = append(words, more...)
		}
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteSeveral completes the last of several words with commas between them.
func CompleteSeveral(one cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		words, _ := one(cmd, args, typed[len(before):])
		for i := range words {
			words[i] = before + words[i]
		}
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// BeginningWith are the words that go on as somebody began to type.
func BeginningWith(words []cobra.Completion, typed string) []cobra.Completion {
	return slices.DeleteFunc(words, func(word cobra.Completion) bool { return !strings.HasPrefix(word, typed) })
}
