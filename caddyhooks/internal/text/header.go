package text

import "strings"

// Unquote returns the text of a quoted string in a header (RFC 8941, section 3.3.3), and other values as they are. It reports false if a
// quoted string does not end where the value does.
func Unquote(value string) (string, bool) {
	value = strings.Trim(value, " \t")
	if !strings.HasPrefix(value, `"`) {
		return value, true
	}
	var unquoted strings.Builder
	for i := 1; i < len(value); i++ {
		switch c := value[i]; {
		case c == '"':
			return unquoted.String(), i == len(value)-1
		case c == '\\':
			i++
			if i == len(value) || value[i] != '"' && value[i] != '\\' {
				return "", false
			}
			unquoted.WriteByte(value[i])
		default:
			unquoted.WriteByte(c)
		}
	}
	return "", false
}
