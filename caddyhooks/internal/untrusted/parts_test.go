package untrusted

import (
	"slices"
	"strings"
	"testing"
)

var partsSeeds = []string{
	"", "plain", "a|b|c", "|a||b|", "[EXTERNAL |WEBHOOK DATA| id=1]", "<|im_|start|>", "e|\u0301", "e|\u200b|\u0301|\u0323x", "\u1100|\u1161|\u11a8",
	"\u0301|\u0301", "\xff|\xfe", "［ＩＮＳＴ］|［/ＩＮＳＴ］", "a\u00ad|\u00adb", "\u0915|\u093c", "x\ufe0f|\u20e3",
}

func FuzzWrapParts(f *testing.F) {
	for _, seed := range partsSeeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parts := strings.Split(text, "|")
		marker := NewMarker()
		before, cleaned, after := marker.WrapParts(parts)
		got := before + strings.Join(cleaned, "") + after
		if len(cleaned) != len(parts) {
			t.Fatalf("%d parts became %d", len(parts), len(cleaned))
		}
		// Parts that share the bytes of a character are not those of a message.
		if valid(parts) && got != marker.Wrap(strings.Join(parts, "")) {
			t.Errorf("the parts %q became %q, the whole %q", parts, cleaned, marker.Wrap(strings.Join(parts, "")))
		}
	})
}

func valid(parts []string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return part != strings.ToValidUTF8(part, "") })
}

func TestPartsAreCleanedAsAWhole(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ parts, want []string }{
		{[]string{"Issue ", "1207", "!"}, []string{"Issue ", "1207", "!"}},
		{[]string{"a <", "|im_start|", "> b"}, []string{"a (", "|im_start|", ") b"}},
		{[]string{"cafe", "\u0301s"}, []string{"caf\u00e9", "s"}},
		{[]string{"e", "\u200b", "\u0301"}, []string{"\u00e9", "", ""}},
	} {
		if _, got, _ := NewMarker().WrapParts(tc.parts); !slices.Equal(got, tc.want) {
			t.Errorf("%q: got %q, want %q", tc.parts, got, tc.want)
		}
	}
}
