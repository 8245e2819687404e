package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/lineartest"
)

func TestParseTakesJSON(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in   string
		want any
	}{
		{`null`, nil},
		{" true\r\n\t", true},
		{`false`, false},
		{`""`, ""},
		{`"a\"\\\/\b\f\n\r\tz"`, "a\"\\/\b\f\n\r\tz"},
		{`"\u00e9\ud83d\ude00é😀"`, "é😀é😀"},
		{`"\u0000"`, "\x00"},
		{`"�"`, "\ufffd"},
		{`-0`, json.Number("-0")},
		{`1.10`, json.Number("1.10")},
		{`12345678901234567890`, json.Number("12345678901234567890")},
		{`-1.5E+10`, json.Number("-1.5E+10")},
		{`1e400`, json.Number("1e400")},
		{`[]`, []any{}},
		{`[ 1 , [ ] ]`, []any{json.Number("1"), []any{}}},
		{`{}`, map[string]any{}},
		{`{ "a" : { } , "" : null }`, map[string]any{"a": map[string]any{}, "": nil}},
		{deep(MaxDepth), nested(MaxDepth)},
	} {
		got, err := Parse([]byte(tc.in))
		if err != nil {
			t.Errorf("Parse(%.40q): %v", tc.in, err)
		} else if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("Parse(%.40q) = %#v, want %#v", tc.in, got, tc.want)
		}
	}
}

func TestParseRefusesOtherText(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		``, ` `, `nul`, `nulll`, `True`, `{`, `[`, `"`, `"\`, `"\u12`, `"\u12g4"`, `"\x"`, `}`, `]`, `,`,
		`{"a"}`, `{"a":}`, `{"a":1,}`, `{,}`, `{a:1}`, `{'a':1}`, `{"a":1 "b":2}`, `{"a":1]`, `{"a"`, `{"a":1`, `{"a":1,`,
		`[1,]`, `[,1]`, `[1 2]`, `[1}`, `[1`, `[1,`,
		`01`, `-`, `+1`, `.5`, `1.`, `1e`, `1e+`, `--1`, `0x10`, `NaN`, `Infinity`,
		`1 2`, `{} {}`, `{}x`, "\ufeff{}",
		`{"a":1,"a":1}`, `{"a":1,"\u0061":2}`, `[{"x":{"a":1,"a":2}}]`,
		"\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "{\"\xff\":1}", "\"\\n\xff\"",
		`"\ud800"`, `"\udc00"`, `"\ud800\ud800"`, `"\ud800x"`, `"\ud800\n"`, `"\ude00\ud83d"`,
		"\"a\nb\"", "\"\\na\tb\"", "\"\x00\"",
		deep(MaxDepth + 1), strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 100_000),
	} {
		if v, err := Parse([]byte(in)); err == nil {
			t.Errorf("Parse(%.40q) = %#v, want an error", in, v)
		}
	}
}

func TestErrorsQuoteNothingOfTheDocument(t *testing.T) {
	t.Parallel()
	_, err := Parse([]byte(`{"password":"hunter2" oops}`))
	if err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "oops") {
		t.Errorf("got error %v", err)
	}
}

func TestParseObjectKeepsBytesAndOrder(t *testing.T) {
	t.Parallel()
	obj, err := ParseObject([]byte(` {"z": {"b": 1.0, "a":"\u0041"} , "y":{"y":1}, "a":[ 1 ],"x":2, "s":"\n", "n":null}`), Members("a", "n", "s", "z", "none"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Member{
		{"z", map[string]any{}, []byte(`{"b": 1.0, "a":"\u0041"}`)},
		{"a", []any{}, []byte(`[ 1 ]`)},
		{"s", "\n", []byte(`"\n"`)},
		{"n", nil, []byte(`null`)},
	}
	if !reflect.DeepEqual(obj.Members, want) || !slices.Equal(obj.Other, []string{"y", "x"}) {
		t.Errorf("got %+v", obj)
	}
}

func TestParseObjectRefusesOtherDocuments(t *testing.T) {
	t.Parallel()
	many := `{"k0":0`
	for i := range 40 {
		many += fmt.Sprintf(`,"k%d":0`, i+1)
	}
	if obj, err := ParseObject([]byte(many+"}"), wholeDocument); err != nil || len(obj.Members) != 41 {
		t.Errorf("41 members: got %d, %v", len(obj.Members), err)
	}
	for _, in := range []string{
		``, `[]`, `null`, `"x"`, `1`, `{"a":1,"a":2}`, `{} 1`, `[`,
		many + `,"k3":1}`, many + `,"k30":1}`, many + `,"k40":1}`,
	} {
		for _, selected := range []*Selection{nil, Members("a", "k3"), wholeDocument} {
			if _, err := ParseObject([]byte(in), selected); err == nil {
				t.Errorf("ParseObject(%q) gave no error", in)
			}
		}
	}
}

func TestOtherPartsAreLeftOut(t *testing.T) {
	t.Parallel()
	const doc = `{"a":{"b":[1,{"c":2,"d":3}],"e":"x"},"f":[{"g":1},{"g":2,"h":3}],"i":{"j":{}},"k":null,"l":{"m":1}}`
	selected := new(Selection)
	selected.Member("a").Member("b").SelectAll()
	selected.Member("f").Item(1).Member("g").SelectAll()
	selected.Member("i").Member("j").SelectAll()
	selected.Member("k").Member("x").SelectAll()
	selected.Member("l").Item(0).SelectAll()
	got, err := ParseSelected([]byte(doc), selected)
	n := func(s string) json.Number { return json.Number(s) }
	parts := map[string]any{
		"a": map[string]any{"b": []any{n("1"), map[string]any{"c": n("2"), "d": n("3")}}},
		"f": []any{map[string]any{"g": n("1")}, map[string]any{"g": n("2")}},
		"i": map[string]any{"j": map[string]any{}},
		"k": nil,
		"l": map[string]any{},
	}
	if err != nil || !reflect.DeepEqual(got, parts) {
		t.Errorf("got %#v, %v", got, err)
	}
}

func TestSelectedItemsKeepTheirIndexes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		indexes []int
		items   string
		want    string
	}{
		{[]int{0}, `[0,1,2,3,4,5]`, `[0]`},
		{[]int{2, 1}, `[0,1,2,3,4,5]`, `[0,1,2]`},
		{[]int{-1}, `[0,1,2,3,4,5]`, `[5]`},
		{[]int{-2, 1}, `[0,1,2,3,4, 5]`, `[0,1,4,5]`},
		{[]int{-2, 4}, `[0,1,2,3,4,5]`, `[0,1,2,3,4,5]`},
		{[]int{-4, 4}, `[0,1,2,3,4,5]`, `[0,1,2,3,4,5]`},
		{[]int{-3}, `[0,1]`, `[0,1]`},
		{[]int{9}, `[0,1]`, `[0,1]`},
		{[]int{9, -9}, `[]`, `[]`},
		{[]int{-2}, `[{"a":1}, [[]] ,{"b":[{}]}]`, `[[[]],{"b":[{}]}]`},
	} {
		selected := new(Selection)
		for _, index := range tc.indexes {
			selected.Item(index).SelectAll()
		}
		got, err := ParseSelected([]byte(tc.items), selected)
		want, wantErr := Parse([]byte(tc.want))
		if err != nil || wantErr != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v of %s: got %v, %v", tc.indexes, tc.items, got, err)
		}
	}
	last := new(Selection)
	last.Item(-1).Item(-1).Item(-1).SelectAll()
	if _, err := ParseSelected([]byte(deep(MaxDepth)), last); err != nil {
		t.Error(err)
	}
	if _, err := ParseSelected([]byte(deep(MaxDepth+1)), last); err == nil {
		t.Error("items before the end may be nested too deep")
	}
}

func TestOtherPartsAreChecked(t *testing.T) {
	t.Parallel()
	many := ""
	for i := range 100 {
		many += fmt.Sprintf(`"k%d":{"x":0},`, i)
	}
	if _, err := ParseSelected([]byte("{"+many+`"end":{`+many+`"end":0}}`), nil); err != nil {
		t.Error(err)
	}
	for _, part := range []string{
		`{"x":1,"x":1}`, `"\ud800"`, "\"\xff\"", `01`, `[1,]`, deep(MaxDepth), "{" + many + `"k3":1}`, "{" + many + `"k99":1}`,
	} {
		if _, err := ParseSelected([]byte(`{"skipped":[`+part+`]}`), nil); err == nil {
			t.Errorf("%.40q is taken where it is not selected", part)
		}
	}
}

func deep(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

func nested(n int) any {
	v := []any{}
	for range n - 1 {
		v = []any{v}
	}
	return v
}

// encoding/json gives the same value for every document that Parse takes. It takes some that Parse refuses on purpose.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"text":"hi","chatId":null,"metadata":{"a":[1,2.50,-3e4,true,false]}}`, `"\ud83d\ude00"`, `[[[[]]]]`,
		`{"a":1,"a":2}`, "\"\xff\"", `{"k\u00e9y": "\\"} `,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := Parse(data)
		if _, skipErr := ParseSelected(data, nil); !reflect.DeepEqual(skipErr, err) {
			t.Fatalf("built: %v, skipped: %v", err, skipErr)
		}
		obj, objErr := ParseObject(data, wholeDocument)
		if _, skipErr := ParseObject(data, nil); !reflect.DeepEqual(skipErr, objErr) {
			t.Fatalf("all members: %v, none: %v", objErr, skipErr)
		}
		if objErr == nil && err != nil {
			t.Fatalf("ParseObject takes what Parse refuses: %v", err)
		}
		for _, m := range obj.Members {
			if v, err := Parse(m.Raw); err != nil || !reflect.DeepEqual(v, got.(map[string]any)[m.Key]) {
				t.Fatalf("raw bytes of %q do not hold its value: %v", m.Key, err)
			}
		}
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		var want any
		wantErr := dec.Decode(&want)
		if wantErr == nil && dec.More() {
			wantErr = &Error{}
		}
		if err == nil && (wantErr != nil || !reflect.DeepEqual(got, want)) {
			t.Fatalf("Parse(%q) = %#v, encoding/json: %#v, %v", data, got, want, wantErr)
		}
		if err != nil && json.Valid(data) && !refusedOnPurpose(data) {
			t.Fatalf("Parse(%q): %v", data, err)
		}
	})
}

// refusedOnPurpose reports whether a document is valid for encoding/json, but not here.
func refusedOnPurpose(data []byte) bool {
	if !utf8.Valid(data) || bytes.Contains(bytes.ToLower(data), []byte(`\ud`)) { // some of these are lone surrogates
		return true
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var objects []map[string]bool // nil for an array
	isKey := false
	for {
		token, err := dec.Token()
		if err != nil {
			return false
		}
		switch token {
		case json.Delim('{'):
			objects = append(objects, make(map[string]bool))
		case json.Delim('['):
			objects = append(objects, nil)
		case json.Delim('}'), json.Delim(']'):
			objects = objects[:len(objects)-1]
		default:
			if key, ok := token.(string); ok && isKey {
				keys := objects[len(objects)-1]
				if keys[key] {
					return true
				}
				keys[key] = true
				isKey = false
				continue
			}
		}
		if len(objects) > MaxDepth {
			return true
		}
		isKey = len(objects) > 0 && objects[len(objects)-1] != nil
	}
}

// Objects of any size, side by side and in each other, are checked for duplicate keys.
func FuzzDuplicateKeys(f *testing.F) {
	all := make([]byte, 240)
	for i := range all {
		all[i] = byte(i)
	}
	f.Add(all)
	f.Add(append(all, 7))
	f.Add(append(append(all[:100:100], 250), all...))
	f.Add(append(append(append(all[:100:100], 250), all...), 255, 40))
	f.Fuzz(func(t *testing.T, data []byte) {
		doc := []byte{'{'}
		keys := []map[byte]bool{{}}
		duplicate := false
		for i, b := range data {
			if b >= 253 { // ends an object
				if len(keys) > 1 {
					keys = keys[:len(keys)-1]
					doc = append(doc, '}')
				}
				continue
			}
			if doc[len(doc)-1] != '{' {
				doc = append(doc, ',')
			}
			own := keys[len(keys)-1]
			duplicate = duplicate || own[b]
			own[b] = true
			if i%2 == 0 {
				doc = fmt.Appendf(doc, `"\u%04x":`, b)
			} else {
				name, _ := json.Marshal(string(rune(b)))
				doc = append(append(doc, name...), ':')
			}
			if b >= 250 && len(keys) < MaxDepth { // starts an object
				keys = append(keys, map[byte]bool{})
				doc = append(doc, '{')
			} else {
				doc = append(doc, '0')
			}
		}
		doc = append(doc, bytes.Repeat([]byte{'}'}, len(keys))...)
		for name, selected := range map[string]*Selection{"skipped": nil, "built": wholeDocument, "in part": {members: map[string]*Selection{"\u0007": wholeDocument}}} {
			if _, err := ParseSelected(doc, selected); (err != nil) != duplicate {
				t.Errorf("%s, %.2000s: %v, want duplicate = %v", name, doc, err, duplicate)
			}
		}
	})
}

// Whatever a document is made of, checking it takes at most four times its size, and so does reading one member.
func TestPartsThatNobodyAskedForTakeNoMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	repeat := func(head, item, tail string) []byte {
		return []byte(head + strings.Repeat(item+",", (1<<20)/(len(item)+1)) + item + tail)
	}
	keys := func(head, format, tail string) []byte {
		doc := []byte(head)
		for i := 0; len(doc) < 1<<20; i++ {
			doc = append(fmt.Appendf(doc, format, i), ',')
		}
		return append(doc, tail...)
	}
	nested := `{"a":0}`
	for level := range MaxDepth - 2 {
		own := ""
		for i := range 150 {
			own += fmt.Sprintf(`"%d":0,`, i)
		}
		nested = fmt.Sprintf(`{%s"%d":%s}`, own, 1000+level, nested)
	}
	for name, doc := range map[string][]byte{
		"empty objects":          repeat(`{"text":"x","a":[`, `{}`, `]}`),
		"empty arrays":           repeat(`{"text":"x","a":[`, `[]`, `]}`),
		"small objects":          repeat(`{"text":"x","a":[`, `{"a":0}`, `]}`),
		"numbers":                repeat(`{"text":"x","a":[`, `0`, `]}`),
		"objects instead":        repeat(`{"text":[`, `{}`, `],"a":1}`),
		"array at the top":       repeat(`[`, `{}`, `]`),
		"many keys":              keys(`{"text":"x",`, `"%x":0`, `"end":0}`),
		"many keys in a member":  keys(`{"text":{`, `"%x":0`, `"end":0}}`),
		"many escaped keys":      keys(`{"text":"x",`, `"\n%x":0`, `"end":0}`),
		"many objects of 33":     []byte(`[` + strings.Repeat(string(keysOf(33))+",", 3000) + `0]`),
		"many objects of 100":    []byte(`[` + strings.Repeat(string(keysOf(100))+",", 1000) + `0]`),
		"large objects in large": []byte(nested),
		"a long key":             []byte(`{"text":"x","` + strings.Repeat("x", 1<<20) + `":0}`),
		"a long escaped key":     []byte(`{"text":"x","` + strings.Repeat(`\n`, 1<<19) + `":0}`),
		"a long string":          []byte(`{"text":"` + strings.Repeat(`x`, 1<<20) + `"}`),
		"a long escaped string":  []byte(`{"text":"` + strings.Repeat(`\n`, 1<<19) + `"}`),
	} {
		for how, parse := range map[string]func() error{
			"nothing": func() error { _, err := ParseSelected(doc, nil); return err },
			"text":    func() error { _, err := ParseSelected(doc, Members("text")); return err },
			"members": func() error {
				_, err := ParseObject(doc, Members("text"))
				if doc[0] == '[' {
					return nil
				}
				return err
			},
		} {
			if took := allocated(t, parse); took > 4*len(doc) {
				t.Errorf("%s, %s: %d bytes for a document of %d, %.1f times its size", name, how, took, len(doc), float64(took)/float64(len(doc)))
			}
		}
	}
}

func keysOf(n int) []byte {
	doc := []byte{'{'}
	for i := range n {
		doc = append(fmt.Appendf(doc, `"%x":0`, i), ',')
	}
	doc[len(doc)-1] = '}'
	return doc
}

// allocated is how many bytes work allocates.
func allocated(t *testing.T, work func() error) int {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err := work()
	runtime.ReadMemStats(&after)
	if err != nil {
		t.Fatal(err)
	}
	return int(after.TotalAlloc - before.TotalAlloc)
}

func TestManyKeysTakeLinearTime(t *testing.T) {
	if testing.Short() {
		t.Skip("one goroutine computes for long")
	}
	t.Parallel()
	lineartest.Check(t, 100_000, func(many int) func() {
		var large, long, objects strings.Builder
		for i := range many {
			fmt.Fprintf(&large, `"%d":0,`, i)
			if i%40 == 0 { // small objects must not pay for the index of a large one
				objects.WriteString(`},{"":0`)
			}
			fmt.Fprintf(&objects, `,"%d":0`, i)
		}
		prefix := strings.Repeat("x", many/3)
		for i := range fewKeys {
			fmt.Fprintf(&long, `"%s%d":0,`, prefix, i)
		}
		return func() {
			for _, doc := range []string{
				"{" + large.String() + `"end":0}`,
				"[{" + large.String() + `"end":0},{"":0` + objects.String()[len(`},{"":0`):] + "}]",
				"{" + large.String() + `"end":{` + large.String() + `"end":0}}`,
				"{" + long.String() + `"end":0}`,
			} {
				if _, err := ParseSelected([]byte(doc), nil); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// What is reserved for values is at least what they take, and not much more.
func TestMemoryOfValuesIsReserved(t *testing.T) {
	repeat := func(head, item, tail string) string {
		return head + strings.Repeat(item+",", 100_000/len(item)) + item + tail
	}
	members := func(n int) string { return repeat("[", string(keysOf(n)), "]") }
	for name, doc := range map[string]string{
		"numbers":           repeat("[", "0", "]"),
		"texts":             repeat("[", `"text"`, "]"),
		"escaped texts":     repeat("[", `"\n"`, "]"),
		"long text":         `{"a":"` + strings.Repeat(`\n`, 100_000) + `"}`,
		"empty arrays":      repeat("[", "[]", "]"),
		"arrays":            repeat("[", "[0]", "]"),
		"objects":           repeat("[", `{"a":{"b":0}}`, "]"),
		"objects of 8":      members(8),
		"objects of 9":      members(9),
		"objects of 15":     members(15),
		"objects of 30":     members(30),
		"objects of 1000":   members(1000),
		"object of 100,000": string(keysOf(100_000)),
	} {
		reserved := 0
		var kept any
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		kept, err := ParseWithin([]byte(doc), wholeDocument, func(bytes int) bool { reserved += bytes; return true })
		runtime.GC()
		runtime.ReadMemStats(&after)
		took := int(after.HeapAlloc - before.HeapAlloc)
		runtime.KeepAlive(doc)
		runtime.KeepAlive(kept)
		t.Logf("%s: %d bytes take %d, reserved %d", name, len(doc), took, reserved)
		if err != nil || reserved < took || reserved > 4*took+reservedAtOnce {
			t.Errorf("%s: %d bytes are reserved for %d, %v", name, reserved, took, err)
		}
		if _, err := ParseWithin([]byte(doc), wholeDocument, func(int) bool { return false }); !errors.Is(err, ErrNoMemory) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
