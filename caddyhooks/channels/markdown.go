package channels

import (
	"strings"
	"unicode"
)

// quietMarkdown makes an agent's text fit for a service that shows Markdown. Formatting, links and code stay as they are. What
// acts on others is put out of action, mostly with a space of no width, which nobody sees: mentions of people, references to
// issues, commands at the beginning of a line, HTML, and pictures, which readers would fetch from anywhere.
//
// Code between lines of ``` or ~~~ is left alone, but for commands.
func quietMarkdown(text string) string {
	var b strings.Builder
	b.Grow(len(text) + len(text)/16)
	fenceable := !hidesFences(text)
	fence := "" // what opened the code that a line is in
	for rest := text; rest != ""; {
		line := rest
		if end := strings.IndexByte(rest, '\n'); end >= 0 {
			line = rest[:end+1]
		}
		rest = rest[len(line):]
		if n := commandAt(line); n >= 0 {
			b.WriteString(line[:n])
			b.WriteString(zeroWidthSpace)
			line = line[n:]
		}
		switch {
		case fence != "":
			if closesFence(line, fence) {
				fence = ""
			}
			b.WriteString(line)
		case fenceable && opensFence(line) != "":
			fence = opensFence(line)
			b.WriteString(line)
		default:
			quietLine(&b, line)
		}
	}
	return b.String()
}

const zeroWidthSpace = "\u200B"

// quietLength is the length of a text after quietMarkdown, as services count it.
func quietLength(text string) int { return utf16Length(quietMarkdown(text)) }

// hidesFences reports whether a text has something in which some services do not see the lines around code: a header as files
// have it, or formulas.
func hidesFences(text string) bool {
	start := strings.TrimLeft(text, " \t\n")
	for _, mark := range []string{"---", "+++", ";;;"} {
		if strings.HasPrefix(start, mark) {
			return true
		}
	}
	return strings.Contains(text, "$$")
}

// opensFence returns the marks that a block of code begins with, "" if the line begins none. An indented line may belong to a list
// that ends before the code does, so it does not count.
func opensFence(line string) string {
	n := len(line) - len(strings.TrimLeft(line, "`"))
	if n >= 3 && !strings.Contains(line[n:], "`") {
		return line[:n]
	}
	if n = len(line) - len(strings.TrimLeft(line, "~")); n >= 3 {
		return line[:n]
	}
	return ""
}

// closesFence reports whether a line ends the code that fence began.
func closesFence(line, fence string) bool {
	marks := strings.TrimLeft(line, " ")
	if len(line)-len(marks) > 3 {
		return false
	}
	marks = strings.TrimRight(marks, " \t\n")
	return len(marks) >= len(fence) && strings.Trim(marks, fence[:1]) == ""
}

// commandAt is the place of the slash of a line such as "/close", which is a command to some services and bots; -1 if it is none.
func commandAt(line string) int {
	start := len(line) - len(strings.TrimLeft(line, " \t>"))
	name, ok := strings.CutPrefix(line[start:], "/")
	n := 0
	for n < len(name) && (isAlphanumeric(name[n]) || name[n] == '_' || name[n] == '-') {
		n++
	}
	if !ok || n == 0 || n < len(name) && strings.IndexByte(" \t\n", name[n]) < 0 {
		return -1
	}
	return start
}

// quietLine writes a line that is not code.
func quietLine(b *strings.Builder, line string) {
	inAddress, open := false, 0 // whether this is a part of https://…, and brackets that were opened in it
	for i := 0; i < len(line); i++ {
		c, rest := line[i], line[i+1:]
		switch {
		case inAddress && c == '(':
			open++
		case inAddress && c == ')' && open > 0:
			open--
		case inAddress && !isAlphanumeric(c) && strings.IndexByte("-._~/?#@!$&+,;=%:'", c) < 0:
			inAddress = false
		case c == '@' && inAddress:
			b.WriteString("%40")
			continue
		case c == '-' && inAddress && isDigit(rest) && endsInTracker(line[:i]):
			b.WriteString("%2D")
			continue
		case c|0x20 == 'h' && !inAddress && isAddress(line[i:]) && (i == 0 || !isAlphanumeric(line[i-1])):
			inAddress, open = true, 0
			i += writeAddressStart(b, line[i:]) - 1
			continue
		}
		b.WriteByte(c)
		numbers := c == '#' || c == '!' || c == '-' && endsInTracker(line[:i])
		if c == '@' || beginsMarkup(c, rest) || numbers && !inAddress && isDigit(rest) {
			b.WriteString(zeroWidthSpace)
			inAddress = false
		}
	}
}

// beginsMarkup reports whether a character and what follows it begin a picture, a reference, a tag or a character that is written
// as a number or a name.
func beginsMarkup(c byte, rest string) bool {
	switch c {
	case '!':
		return strings.HasPrefix(rest, "[")
	case '[':
		return isReferenceKind(rest)
	case '<':
		return rest != "" && (isAlphanumeric(rest[0]) || strings.IndexByte("/!?", rest[0]) >= 0) && !isBracketedAddress(rest)
	case '&':
		return isEntity(rest)
	}
	return false
}

func isDigit(text string) bool { return text != "" && '0' <= text[0] && text[0] <= '9' }

// endsInTracker reports whether a text ends with the letters of GH-1 and GL-1, which stand for issue 1.
func endsInTracker(text string) bool {
	n := len(text)
	return n >= 2 && text[n-2]|0x20 == 'g' && (text[n-1]|0x20 == 'h' || text[n-1]|0x20 == 'l') && (n == 2 || !isAlphanumeric(text[n-3]))
}

// isReferenceKind reports whether [ and this text begin a reference such as [issue:1].
func isReferenceKind(text string) bool {
	n := 0
	for n < len(text) && ('a' <= text[n] && text[n] <= 'z' || text[n] == '_') {
		n++
	}
	return n > 0 && n < len(text) && text[n] == ':'
}

// isBracketedAddress reports whether < and this text are a link such as <https://example.com>.
func isBracketedAddress(text string) bool {
	end := strings.IndexAny(text, "> \t\n<")
	return isAddress(text) && end > 0 && text[end] == '>'
}

// isEntity reports whether & and this text are a character that is written as a number, or by a name of something that matters.
func isEntity(text string) bool {
	name, _, ok := strings.Cut(text[:min(len(text), 12)], ";")
	return ok && (strings.HasPrefix(name, "#") || name == "commat" || name == "num" || name == "fjlig")
}

func isAddress(text string) bool {
	start := strings.ToLower(text[:min(len(text), len("https://"))])
	return start == "https://" || strings.HasPrefix(start, "http://")
}

// writeAddressStart writes the beginning of an address, up to its host, and returns how many bytes of the text it took. A link to an
// issue on GitHub would leave a note there, and one to a person in Linear is a mention. So the first goes by the name that GitHub has
// for links that leave none, and the second is no link.
func writeAddressStart(b *strings.Builder, text string) int {
	n := strings.Index(text, "//") + 2
	address := strings.ToLower(text[n:min(len(text), n+200)])
	address = address[:len(address)-len(strings.TrimLeftFunc(address, func(r rune) bool { return !unicode.IsSpace(r) }))]
	address = strings.TrimPrefix(address, "www.")
	names := strings.Split(address, "/")
	switch {
	case len(names) > 4 && names[0] == "github.com" && (names[3] == "issues" || names[3] == "pull" || names[3] == "discussions"):
		b.WriteString(text[:n] + "redirect.")
		return strings.Index(strings.ToLower(text), "github.com")
	case len(names) > 3 && names[0] == "linear.app" && names[2] == "profiles":
		b.WriteString(text[:n-2] + zeroWidthSpace)
		return n - 2
	}
	b.WriteString(text[:n])
	return n
}
