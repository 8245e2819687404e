package untrusted

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"
)

// defang turns, in the skeleton of a text, the brackets of every forged marker and every chat-template token into
// parentheses, and reports whether there were any. It never makes a bracket, so defanged text stays defanged.
func defang(text string, skel []byte) bool {
	found := defangTokens(skel)
	for _, token := range shoutedTokens {
		if defangShouted(text, skel, token) {
			found = true
		}
	}
	// Once the nearest brackets around the words are turned, the next pair is the nearest. The loop ends soon: there are
	// words between one pair and the next, and only a few words are looked past.
	for defangMarkers(skel) {
		found = true
	}
	return found
}

// controlTokens are the special tokens that models are trained to obey, without underscores. Those of the form <|…|> need
// no list.
var controlTokens = []string{
	// Llama and Mistral
	"[inst]", "[/inst]", "<<sys>>", "<</sys>>", "<s>", "</s>",
	"[systemprompt]", "[/systemprompt]", "[modelsettings]", "[/modelsettings]", "[think]", "[/think]",
	"[availabletools]", "[/availabletools]", "[toolcalls]", "[toolresults]", "[/toolresults]", "[toolcontent]", "[/toolcontent]",
	// Gemma
	"<startofturn>", "<endofturn>", "<bos>", "<eos>",
	"<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|tool>", "<tool|>",
	"<|toolcall>", "<toolcall|>", "<|toolresponse>", "<toolresponse|>",
	// Qwen, DeepSeek, Hermes and others that think and call tools in tags
	"<think>", "</think>", "<toolcall>", "</toolcall>", "<toolresponse>", "</toolresponse>",
	"<functioncalls>", "</functioncalls>", "<functionresults>", "</functionresults>",
	// Seed
	"<seed:bos>", "<seed:eos>", "<seed:pad>", "<seed:think>", "</seed:think>", "<seed:toolcall>", "</seed:toolcall>",
	"<seed:cotbudgetreflect>", "</seed:cotbudgetreflect>",
	// MiniMax
	"]~b]", "]~!b[", "[e~[", "]!p~[", "]!d~[", "<minimax:toolcall>", "</minimax:toolcall>",
	// GLM and InternLM
	"[gmask]", "<sop>", "<eop>", "<eoh>", "<eoa>", "<eom>", "<eot>",
}

// tokensBySecond holds the control tokens by their second character: few are left to compare at every bracket.
var tokensBySecond = func() (tokens [256][][]byte) {
	for _, token := range controlTokens {
		seen := skeleton(token)
		tokens[seen[1]] = append(tokens[seen[1]], seen)
	}
	return tokens
}()

func defangTokens(skel []byte) bool {
	found := false
	for i := 0; i < len(skel); i++ {
		if skel[i] != '[' && skel[i] != '<' && skel[i] != ']' {
			continue
		}
		if n := tokenLength(skel[i:]); n > 0 {
			turnBrackets(skel[i : i+n])
			found = true
			i += n - 1
		}
	}
	return found
}

// shoutedTokens are control tokens of Mistral, as a skeleton shows them, that people write in small letters and mean no
// token, as in "usage: tool [args]".
var shoutedTokens = [][]byte{skeleton("[ARGS]"), skeleton("[CALL_ID]")}

// defangShouted turns the brackets of a token unless its letters in the text are small and ASCII.
func defangShouted(text string, skel, token []byte) bool {
	next := bytes.Index(skel, token)
	if next < 0 {
		return false
	}
	found := false
	var start, at int // of the token in text, and of the character in skel
	eachCharacter(text, func(i, _ int, folded []byte) {
		if at <= next {
			start = i
		}
		at += len(folded)
		if next < 0 || at < next+len(token) {
			return
		}
		if strings.ContainsFunc(text[start:i], func(r rune) bool { return 'A' <= r && r <= 'Z' || r >= utf8.RuneSelf }) {
			turnBrackets(skel[next : next+len(token)])
			found = true
		}
		if next = bytes.Index(skel[at:], token); next >= 0 {
			next += at
		}
	})
	return found
}

// tokenLength returns the length of the token that skel begins with, or 0.
func tokenLength(skel []byte) int {
	if len(skel) < 2 {
		return 0
	}
	for _, token := range tokensBySecond[skel[1]] {
		if bytes.HasPrefix(skel, token) {
			return len(token)
		}
	}
	return pipedToken(skel)
}

// pipedToken returns the length of the <|name|> that skel begins with, or 0. The longest such token of a known model
// has less than 40 characters.
func pipedToken(skel []byte) int {
	if !bytes.HasPrefix(skel, []byte("<|")) {
		return 0
	}
	i := 2
	for i < len(skel) && i < 2+64 && (isWord(skel[i]) || bytes.IndexByte([]byte(`/.:"`), skel[i]) >= 0) {
		i++
	}
	if i > 2 && bytes.HasPrefix(skel[i:], []byte("|>")) {
		return i + 2
	}
	return 0
}

// markerWords are the words of both our markers.
const markerWords = "externalwebhookdata"

var markerLetters = skeleton(markerWords)

// A forged marker may say more than ours does inside its brackets, such as "END OF …" and "… id=1a2b3c4d". These are
// the numbers of letters and digits between the words and a bracket beyond which it reads as a sentence.
const (
	maxBeforeWords = 16
	maxAfterWords  = 48
)

// defangMarkers looks for the words first and then for brackets around them, so that "[INFO] external webhook data
// arrived" is left alone.
func defangMarkers(skel []byte) bool {
	found := false
	spans := markerSpans(skel)
	for i, span := range spans {
		before, after := 0, len(skel)
		if i > 0 {
			before = spans[i-1].end
		}
		if i+1 < len(spans) {
			after = spans[i+1].start
		}
		opening := outermost(slices.Backward(skel[before:span.start]), "[<", "]>", maxBeforeWords)
		closing := outermost(slices.All(skel[span.end:after]), "]>", "[<", maxAfterWords)
		if opening < 0 || closing < 0 {
			continue
		}
		turnBrackets(skel[before+opening : span.end+closing+1])
		found = true
	}
	return found
}

// outermost walks away from the marker words and returns the index of the last bracket that encloses them, or -1.
// Brackets with words between them are different pairs, of which the nearest counts.
func outermost(walk func(func(int, byte) bool), enclosing, leaving string, maxWords int) int {
	last, words := -1, 0
	for i, c := range walk {
		switch {
		case bytes.IndexByte([]byte(enclosing), c) >= 0:
			last = i
		case bytes.IndexByte([]byte(leaving), c) >= 0:
			return last
		case isWord(c):
			words++
			if last >= 0 || words > maxWords {
				return last
			}
		case (c == '(' || c == ')') && words > 0 && last < 0:
			return last
		}
	}
	return last
}

type span struct{ start, end int }

// markerSpans finds the marker words in skel, with any punctuation between their letters. The spans do not overlap.
func markerSpans(skel []byte) []span {
	var spans []span
	var starts [len(markerWords)]int // where the letters matched so far stand
	matched := 0
	for i, c := range skel {
		if !isWord(c) {
			continue
		}
		for matched > 0 && c != markerLetters[matched] {
			// The words repeat none of their beginnings but the single letter e.
			if last := starts[matched-1]; matched > 1 && skel[last] == markerLetters[0] {
				starts[0], matched = last, 1
			} else {
				matched = 0
			}
		}
		if c != markerLetters[matched] {
			continue
		}
		starts[matched] = i
		matched++
		if matched == len(markerWords) {
			spans = append(spans, span{starts[0], i + 1})
			matched = 0
		}
	}
	return spans
}

func turnBrackets(skel []byte) {
	for i, c := range skel {
		switch c {
		case '[', '<':
			skel[i] = '('
		case ']', '>':
			skel[i] = ')'
		}
	}
}
