// Package untrusted prepares text that came from outside for a model to read.
//
// Clean removes text that models see and people do not: control and invisible characters, forged copies of our own
// markers, and the control tokens of chat templates. Marker puts the cleaned text between two markers that
// carry a random id, so that nothing inside the text can pass for the end of it.
package untrusted

import (
	"strings"

	"golang.org/x/text/unicode/norm"
)

// Clean returns text in NFC, valid UTF-8, without control and invisible characters, and with the brackets of forged
// markers and chat-template tokens turned into parentheses. Everything else stays as it is, and text that is clean
// already is returned without a copy. Clean takes linear time, and cleaning twice changes nothing more.
func Clean(text string) string {
	if isPlain(text) {
		return text
	}
	if !isPrintableASCII(text) {
		text = norm.NFC.String(strings.Map(keepVisible, text)) // Map also turns invalid UTF-8 into U+FFFD
	}

	seen := skeleton(text)
	if !defang(text, seen) {
		return text
	}
	return applyDefanged(text, seen)
}

// isPlain reports whether text is printable ASCII without a bracket that a token could begin with: nothing Clean could
// change. Most wake texts are, and this saves them the rest of the work.
func isPlain(text string) bool {
	for i := 0; i < len(text); i++ {
		if asciiKinds[text[i]] != plain {
			return false
		}
	}
	return true
}

func isPrintableASCII(text string) bool {
	for i := 0; i < len(text); i++ {
		if asciiKinds[text[i]] == special {
			return false
		}
	}
	return true
}

type kind byte

const (
	special kind = iota // control characters and everything outside ASCII
	bracket
	plain
)

var asciiKinds = func() (kinds [256]kind) {
	for c := ' '; c <= '~'; c++ {
		kinds[c] = plain
	}
	kinds['\t'], kinds['\n'] = plain, plain
	kinds['['], kinds['<'], kinds[']'] = bracket, bracket, bracket
	return kinds
}()

func keepVisible(r rune) rune {
	if isDropped(r) {
		return -1
	}
	return r
}

// isDropped reports whether r shows nothing and carries nothing a reader needs. The zero-width joiner and non-joiner
// stay, because emoji and Persian are spelled with them; so do the sixteen variation selectors of the basic plane.
func isDropped(r rune) bool {
	if r < 0x20 {
		return r != '\t' && r != '\n'
	}
	switch {
	case r < 0x7F:
		return false
	case r <= 0x9F: // DEL and C1
		return true
	case r == 0xAD: // soft hyphen
		return true
	case r == 0x61C, r == 0x200E, r == 0x200F, 0x202A <= r && r <= 0x202E, 0x2066 <= r && r <= 0x2069: // bidi controls
		return true
	case r == 0x180E, r == 0x200B, r == 0xFEFF: // zero-width spaces and the byte order mark
		return true
	case 0x2060 <= r && r <= 0x2065: // word joiner and the invisible operators
		return true
	case 0x206A <= r && r <= 0x206F, 0xFFF9 <= r && r <= 0xFFFB, 0x1D173 <= r && r <= 0x1D17A: // format controls
		return true
	case 0xE0000 <= r && r <= 0xE0FFF: // tag characters and the variation-selector supplement
		return true
	}
	return false
}

// applyDefanged returns text with a parenthesis for every bracket that defang has turned in its skeleton.
func applyDefanged(text string, defanged []byte) string {
	var out strings.Builder
	out.Grow(len(text))
	at, copied := 0, 0
	eachCharacter(text, func(i, size int, folded []byte) {
		for j, c := range folded {
			if turned := defanged[at+j]; turned != c {
				out.WriteString(text[copied:i])
				out.WriteByte(turned)
				copied = i + size
				break
			}
		}
		at += len(folded)
	})
	out.WriteString(text[copied:])
	return out.String()
}
