package untrusted

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// skeleton returns text as a forgiving reader sees it: lower-case ASCII letters, digits and punctuation. White space,
// invisible characters, combining marks, hyphens and underscores are gone; full-width, styled and look-alike letters
// and brackets read as the ASCII that they resemble. All other letters read as otherLetter, all other characters as otherSign.
func skeleton(text string) []byte {
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		if c := text[i]; c < utf8.RuneSelf {
			out = appendFoldedASCII(out, c)
			i++
			continue
		}
		var size int
		out, size = appendFoldedRune(out, text[i:])
		i += size
	}
	return out
}

const (
	otherLetter = 0x80
	otherSign   = 0x81
)

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == otherLetter
}

func appendFoldedASCII(dst []byte, c byte) []byte {
	if f := foldedASCII[c]; f != 0 {
		return append(dst, f)
	}
	return dst
}

// foldedASCII holds 0 for the characters that a skeleton leaves out.
var foldedASCII = func() (folded [utf8.RuneSelf]byte) {
	for c := byte('!'); c <= '~'; c++ {
		folded[c] = c
	}
	for c := byte('A'); c <= 'Z'; c++ {
		folded[c] = c + 'a' - 'A'
	}
	folded['_'], folded['-'] = 0, 0
	folded['0'], folded['1'], folded['3'], folded['4'] = 'o', 'l', 'e', 'a'
	return folded
}()

// appendFoldedRune appends the skeleton of the first character of text, and returns the length of the character.
func appendFoldedRune(dst []byte, text string) ([]byte, int) {
	r, size := utf8.DecodeRuneInString(text)
	if 0x3400 <= r && r <= 0x9FFF || 0xAC00 <= r && r <= 0xD7A3 {
		return append(dst, otherLetter), size // Chinese, Japanese and Korean text need no table
	}
	decomposed := norm.NFKD.PropertiesString(text[:size]).Decomposition()
	if decomposed == nil {
		return appendResemblance(dst, r), size
	}
	for len(decomposed) > 0 {
		part, n := utf8.DecodeRune(decomposed)
		dst = appendResemblance(dst, part)
		decomposed = decomposed[n:]
	}
	return dst, size
}

func appendResemblance(dst []byte, r rune) []byte {
	if r < utf8.RuneSelf {
		return appendFoldedASCII(dst, byte(r))
	}
	if like, ok := lookAlikes[r]; ok {
		return append(dst, like...)
	}
	switch {
	case 0x1F150 <= r && r <= 0x1F169: // white letters on black circles
		return append(dst, 'a'+byte(r-0x1F150))
	case 0x1F170 <= r && r <= 0x1F189: // and on black squares
		return append(dst, 'a'+byte(r-0x1F170))
	case 0x1F1E6 <= r && r <= 0x1F1FF: // regional indicators
		return append(dst, 'a'+byte(r-0x1F1E6))
	case unicode.IsLetter(r), unicode.IsNumber(r):
		return append(dst, otherLetter)
	case unicode.In(r, unicode.M, unicode.Z, unicode.C, unicode.Other_Default_Ignorable_Code_Point):
		return dst
	case unicode.Is(unicode.Ps, r):
		return append(dst, '[')
	case unicode.Is(unicode.Pe, r):
		return append(dst, ']')
	}
	return append(dst, otherSign)
}

// lookAlikes maps characters without a compatibility decomposition to the ASCII they resemble.
var lookAlikes = func() map[rune]string {
	like := map[rune]string{'≪': "<<", '≫': ">>", '⟪': "<<", '⟫': ">>", '‖': "||", '∥': "||"}
	for ascii, resembling := range map[string]string{
		// The word mark of some tokenizers, the empty braille cell, Hangul fillers and dashes.
		"": "\u2581\u2800\u115F\u1160\u3164‐‒–—―−",

		"<": "‹〈⟨❬❮❰⧼⦑˂ᐸ",
		">": "›〉⟩❭❯❱⧽⦒˃ᐳ",
		"(": "❨❪⟮⦅⸨﴿",
		")": "❩❫⟯⦆⸩﴾",
		"{": "❴⦃",
		"}": "❵⦄",
		"|": "│┃∣ǀ❘❙❚⏐¦",
		"/": "⁄∕⧸╱",

		// Cyrillic, Greek, Armenian, small capitals and a few stroked Latin letters.
		"a": "АаΑαɑᴀ",
		"b": "ВвЬьΒβʙƀ",
		"c": "СсᴄϲϹ",
		"d": "ԁԀᴅđĐ",
		"e": "ЕеΕεᴇЄєҽɛ",
		"f": "ꜰϜϝ",
		"g": "ɡɢԌց",
		"h": "НнҺһΗʜħĦհ",
		"i": "ІіΙιıɪ",
		"j": "Јјᴊϳ",
		"k": "КкΚκᴋ",
		"l": "ӀӏʟłŁ",
		"m": "МмΜᴍϺ",
		"n": "ΝηɴпПոռ",
		"o": "ОоΟοσᴏøØօՕ",
		"p": "РрΡρᴘ",
		"q": "ԛԚգ",
		"r": "Ггʀᴦ",
		"s": "ЅѕꜱՏ",
		"t": "ТтΤτᴛŧŦ",
		"u": "υᴜսՍ",
		"v": "Ѵѵνᴠ",
		"w": "ԜԝωᴡѡѠա",
		"x": "ХхΧχ",
		"y": "УуΥγʏҮү",
		"z": "Ζᴢ",
	} {
		for _, r := range resembling {
			like[r] = ascii
		}
	}
	return like
}()
