package template

import (
	"strings"
	"testing"
)

// A message takes no more memory than is reserved before, whatever its values are.
func TestMemoryIsReservedBeforeAMessageGrows(t *testing.T) {
	t.Parallel()
	body := decoded(t, `{"text":"`+strings.Repeat("x", 5000)+`","escaped":"`+strings.Repeat(`\u0001`, 5000)+`","list":[`+strings.Repeat(`"\n",`, 5000)+`1],
		"`+strings.Repeat("key", 2000)+`":{"a":null}}`)
	source := func(Source) (string, bool) { return strings.Repeat("s", 5000), true }
	for _, text := range []string{
		"{text}", "{text}{text}{text}", "{escaped}", "{ $.escaped | json }", "{list}", "{$}", "{$..*}", "{$.list[*]}", "{list | join ', '}",
		"{list | indent 20}", "{text | truncate 5000}", "{@body}{@body | json}", strings.Repeat("{none} and text", 1000),
	} {
		parsed, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		reserved, asked := 0, 0
		in := Input{Body: body, Source: source, Reserve: func(bytes int) bool {
			reserved += bytes
			asked++
			return bytes > 0
		}}
		whole := parsed.RenderMarked(in, func(value string) string { return "[" + value + "]" })
		if len(whole) < 5000 || reserved < len(whole) || reserved > 4*len(whole)+1000 || asked > 20 {
			t.Errorf("%.30s: %d bytes are reserved in %d steps for %d", text, reserved, asked, len(whole))
		}
		for _, most := range []int{0, len(text) + 512, len(whole) - 1} {
			room := most
			in.Reserve = func(bytes int) bool {
				if bytes > room {
					return false
				}
				room -= bytes
				return true
			}
			if got := parsed.Render(in); len(got) > most {
				t.Errorf("%.30s: with room for %d bytes there are %d", text, most, len(got))
			}
		}
	}
}
