package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
)

// PrintJSON prints a value as JSON.
func PrintJSON(out io.Writer, value any) error {
	var plain bytes.Buffer
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return err
	}
	return PrintIndented(out, plain.Bytes())
}

// PrintIndented prints JSON, each value on lines of its own. What does not print, and may control a terminal, is escaped as JSON does.
func PrintIndented(out io.Writer, answer []byte) error {
	var indented bytes.Buffer
	if err := json.Indent(&indented, bytes.TrimSpace(answer), "", "  "); err != nil {
		return err
	}
	var escaped strings.Builder
	for _, r := range indented.String() { // JSON itself refuses control characters below 0x20 in its texts
		if r < 0x7f || unicode.IsPrint(r) {
			escaped.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&escaped, `\u%04x`, unit)
		}
	}
	_, err := fmt.Fprintln(out, escaped.String())
	return err
}
