package untrusted

import (
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// skeleton returns text as a forgiving reader sees it: lower-case ASCII letters, digits and punctuation. White space,
// invisible characters, combining marks, hyphens and underscores are gone; full-width, styled and look-alike letters
// and brackets read as the ASCII that they resemble, and l and 1 as i. All other letters read as otherLetter, all other characters as
// otherSign.
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

// eachCharacter visits the characters of text, with their places and lengths in it, and their skeletons.
func eachCharacter(text string, visit func(i, size int, folded []byte)) {
	var folded []byte
	for i := 0; i < len(text); {
		size := 1
		folded = folded[:0]
		if c := text[i]; c < utf8.RuneSelf {
			folded = appendFoldedASCII(folded, c)
		} else {
			folded, size = appendFoldedRune(folded, text[i:])
		}
		visit(i, size, folded)
		i += size
	}
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
	folded['0'], folded['3'], folded['4'], folded['7'], folded['8'] = 'o', 'e', 'a', 't', 'b'
	folded['l'], folded['L'], folded['1'] = 'i', 'i', 'i' // capital I is all of them
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
		for _, c := range []byte(like) {
			dst = appendFoldedASCII(dst, c)
		}
		return dst
	}
	switch {
	case 0x1F150 <= r && r <= 0x1F169: // white letters on black circles
		return appendFoldedASCII(dst, 'a'+byte(r-0x1F150))
	case 0x1F170 <= r && r <= 0x1F189: // and on black squares
		return appendFoldedASCII(dst, 'a'+byte(r-0x1F170))
	case 0x1CCD6 <= r && r <= 0x1CCEF: // outlined letters, which norm does not know yet
		return appendFoldedASCII(dst, 'a'+byte(r-0x1CCD6))
	case 0x1F1E6 <= r && r <= 0x1F1FF: // regional indicators
		return appendFoldedASCII(dst, 'a'+byte(r-0x1F1E6))
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
	for _, script := range scripts {
		for i, letter := range script.resembles {
			if letter != '.' {
				like[script.first+rune(i)] = string(letter)
			}
		}
	}
	for _, table := range []map[string]string{commonLookalikes, rareLookalikes} {
		for ascii, characters := range table {
			for _, r := range characters {
				like[r] = ascii
			}
		}
	}
	return like
}()

// scripts are those with many letters that resemble Latin ones: for each letter from the first on there is the one that it
// resembles, or a dot.
var scripts = []struct {
	first     rune
	resembles string
}{
	{0xA4D0, "bpddt.gk.jc.zf.mnlsr..vh..wxy.a.e.iou"}, // Lisu
	{0x13A0, cherokee}, {0xAB70, cherokee[:80]}, {0x13F8, cherokee[80:]}, // capital and small
	{0x10300, "abcdefzh.iklmn.opmqrstux..fr.iu.ivx"}, // Old Italic
}

const cherokee = "drtooifo.yaje.p.f..wd.gm...h.yo.gnhz.qiw.v.eu.ab..r.wsta.vs..llcj.p..hkd...ou...b..gb."

// commonLookalikes has the look-alikes of common scripts, and signs.
var commonLookalikes = map[string]string{
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
	"~": "∼∽⁓〜",
	":": "∶ː˸꞉⁚։\u05C3\u0703\u0704᠃᠉᛬ꓽ",
	"!": "ǃⵑ",

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
}

// rareLookalikes has letters of further scripts, those that Unicode's list of confusable characters names: Coptic, Canadian
// syllabics, Lycian, Carian, Deseret, Warang Citi and more. Signs and combining marks in that list are not here: between the
// letters of a marker they are skipped.
var rareLookalikes = map[string]string{
	"a": "ᗅ𖽀𐊠",
	"b": "ƄᑲᖯꞴⲂᗷ𐊂𐊡",
	"c": "ⲥငၚ𐐽𑣩𑣲Ⲥ𐊢𐐕𐔜",
	"d": "ᑯᗞᗪ",
	"e": "ꬲⴹ𑢦𑢮𐊆",
	"f": "ꬵꞙƒẝքꞘᖴ𑣂𑢢𐊇𐊥𐔥",
	"g": "ᶃƍ",
	"h": "Ⲏᕼ𐋏",
	"i": "ɩⲓꙇւ𑣃ƖⲒᛁ",
	"j": "ꞲͿᒍ",
	"k": "Ⲕᛕ𐔘",
	"l": "\u0661\u06F1\U0001E8C7\u05D5\u05DF\u0627\u07CAⵏ𖼨𐊊Ⳑᒪ𖼖𑢣𑢲𐐛𐔦",
	"m": "Ⲙᗰᛖ𐊰",
	"n": "Ⲛ𐔓",
	"o": "०০੦૦୦௦౦൦๐໐၀០𑓐\u0665\u06F5ᴑꬽⲟϭჿ\u05E1\u0647\u06BE\u06C1\u06D5ഠဝ𐓪𑣈𑣗𐐬\u07C0೦〇𑣠Ⲟⵔዐଠ𐓂𑢵𐊒𐊫𐐄𐔖",
	"p": "þƿϸⲣⳏⲢⳎᑭ𐊕",
	"q": "զⵕ",
	"r": "ꭇꭈⲅƦ𐒴ᖇ𖼵",
	"s": "ƽട𑣁𐑈𖼺𐊖𐐠",
	"t": "Ⲧ𖼊𑢼𐊗𐊱",
	"u": "ꞟꭎꭒʋ𐓶𑣘ሀ𐓎ᑌ𖽂𑢸",
	"v": "\u05D8𑜆𑣀\u0667\u06F7ⴸᐯꛟ𖼈𑢠𐔝",
	"w": "ɯⲽш𑜊𑜎𑜏𑣦𑣯",
	"x": "ᕁᕽ𑣬ꞳⲬⵝᚷ𐊐𐊴𐔧",
	"y": "ɣᶌỿꭚⲩყ𑣜Ⲩ𖽃𑢤𐊲",
	"z": "𑣄𑣥\U000102F5𑢩",
}
