package cli

import (
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/terminal"
)

// nextCommand is a command for a shell that asks the same instance, to be copied.
func nextCommand(cmd *cobra.Command, words ...string) string {
	line := "caddy hooks"
	for _, flag := range []string{"address", "instance"} {
		if cmd.Flags().Changed(flag) {
			line += " --" + flag + " " + shellWord(flagText(cmd, flag))
		}
	}
	for _, word := range words {
		line += " " + shellWord(word)
	}
	return line
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellWord is a text as a shell reads it.
func shellWord(text string) string {
	text = terminal.Escaped(text)
	if plainWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
