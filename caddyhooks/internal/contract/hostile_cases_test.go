package contract

import (
	"fmt"
	"strings"
)

// hostileCases are schemas and answers made to cost too much.
func hostileCases() map[string]hostileCase {
	repeat := func(n int, separator string, item func(i int) string) string {
		var out strings.Builder
		for i := range n {
			if i > 0 {
				out.WriteString(separator)
			}
			out.WriteString(item(i))
		}
		return out.String()
	}
	always := func(text string) func(int) string { return func(int) string { return text } }
	// doubling returns definitions d0 … dn, where each applies the next one twice and the last is last.
	doubling := func(n int, keyword, last string) string {
		return `"$defs":{` + repeat(n, ",", func(i int) string {
			return fmt.Sprintf(`"d%d":{"%s":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i, keyword, i+1, i+1)
		}) + fmt.Sprintf(`,"d%d":%s},"$ref":"#/$defs/d0"`, n, last)
	}
	object := func(n int) string {
		return "{" + repeat(n, ",", func(i int) string { return fmt.Sprintf(`"key%d":%d`, i, i) }) + "}"
	}
	array := func(n int, item func(i int) string) string { return "[" + repeat(n, ",", item) + "]" }
	number := func(i int) string { return fmt.Sprint(i) }
	nested := func(n int, open, middle, shut string) string {
		return strings.Repeat(open, n) + middle + strings.Repeat(shut, n)
	}

	return map[string]hostileCase{
		"huge exponent in the schema":     {`{"minimum":1e999999999}`, `1`},
		"huge exponent in const":          {`{"const":1e999999999}`, `1`},
		"huge exponent in the answer":     {`{"type":"integer","minimum":1,"multipleOf":3}`, `1e999999999`},
		"500 numbers of a million digits": {`{"items":{"type":"integer","maximum":5}}`, array(500, always("1e999999"))},
		"50,000 numbers 1e999":            {`{"items":{"type":"integer","multipleOf":7,"minimum":3e-999}}`, array(50_000, always("1e999"))},
		"numbers of 500 digits":           {`{"items":{"multipleOf":0.` + strings.Repeat("7", 500) + `}}`, array(2000, always(strings.Repeat("9", 500)))},
		"numbers that are far apart":      {`{"items":{"multipleOf":7e-999}}`, array(90_000, always("1.1e999"))},
		"2^20 allOf":                      {`{` + doubling(20, "allOf", `{"type":"integer"}`) + `}`, `1`},
		"2^20 allOf that fail":            {`{` + doubling(20, "allOf", `{"type":"integer"}`) + `}`, `"x"`},
		"2^16 allOf that fail":            {`{` + doubling(16, "allOf", `{"minimum":5}`) + `}`, `1`},
		"2^20 anyOf that fail":            {`{` + doubling(20, "anyOf", `{"type":"integer"}`) + `}`, `"x"`},
		"2^20 oneOf":                      {`{` + doubling(20, "oneOf", `{"minimum":5}`) + `}`, `1`},
		"recursive schema, 3,000 deep":    {`{"type":"array","items":{"$ref":"#"}}`, nested(3000, "[", "", "]")},
		"recursive schema, 128 deep":      {`{"anyOf":[{"type":"array","items":{"$ref":"#"}},{"type":"array","items":{"$ref":"#"}}]}`, nested(128, "[", "", "]")},
		"recursive schema, 127 deep and wrong": {`{"oneOf":[{"items":{"$ref":"#"}},{"type":"array","items":{"$ref":"#"}}]}`,
			nested(127, "[", "1", "]")},
		"not, nested 9,000 deep": {nested(9000, `{"not":`, `true`, `}`), `1`},
		"not, nested 60 deep":    {nested(60, `{"not":`, `{"not":{}}`, `}`), array(20_000, number)},
		"long chain of references at every level": {`{"$defs":{` + repeat(1200, ",", func(i int) string {
			return fmt.Sprintf(`"%d":{"$ref":"#/$defs/%d"}`, i, i+1)
		}) + `,"1200":{"items":{"$ref":"#"}}},"$ref":"#/$defs/0"}`, nested(120, "[", "1", "]")},
		"800 patternProperties, 5,000 keys": {`{"patternProperties":{` + repeat(800, ",", func(i int) string {
			return fmt.Sprintf(`"k.*%d$":{"minimum":1}`, i)
		}) + `}}`, object(5000)},
		"800 enum objects, 800 items": {`{"items":{"enum":` + array(800, func(i int) string { return fmt.Sprintf(`{"a":{"b":[%d]}}`, i) }) + `}}`,
			array(800, func(i int) string { return fmt.Sprintf(`{"a":{"b":[%d]}}`, i+1) })},
		"large enum, large items": {`{"items":{"enum":[` + array(4500, number) + `]}}`,
			array(20, func(int) string { return array(4500, number) })},
		"60 large regular expressions, 10 KB": {`{"allOf":[` + repeat(60, ",", func(i int) string {
			return fmt.Sprintf(`{"pattern":"(x+x+){%d}y"}`, 60+i%7)
		}) + `]}`, `"` + strings.Repeat("x", 10_000) + `"`},
		"large regular expression, 1 MB": {`{"pattern":"^(a|aa|aaa|b?c?d?){200}$"}`, `"` + strings.Repeat("a", 1_000_000) + `"`},
		"nested repeats":                 {`{"pattern":"((a{100}){100}){100}"}`, `"a"`},
		"repeats up to the limit":        {`{"pattern":"` + strings.Repeat(`.{1000}`, 500) + `"}`, `"a"`},
		"Unicode classes, repeated":      {`{"pattern":"` + strings.Repeat(`\\pL{1000}`, 400) + `"}`, `"a"`},
		"many Unicode classes": {`{"allOf":[` + repeat(30, ",", func(i int) string {
			return `{"pattern":"` + strings.Repeat(`\\pL`, 170) + `"}`
		}) + `]}`, `"a"`},
		"ranges that ignore case":                         {`{"pattern":"(?i)` + strings.Repeat(`[B-𞥂]`, 500) + `"}`, `"a"`},
		"few ranges that ignore case":                     {`{"pattern":"(?i)` + strings.Repeat(`[B-𞥂]`, 11) + `"}`, `"a"`},
		"ranges that ignore case, by flags in the middle": {`{"pattern":"(?s-m)(?mi:` + strings.Repeat(`[B-𞥂]`, 500) + `)"}`, `"a"`},
		"uniqueItems, 100,000 numbers":                    {`{"uniqueItems":true}`, array(90_000, number)},
		"uniqueItems at every level":                      {`{"uniqueItems":true,"items":{"$ref":"#"}}`, nested(127, "[", array(30_000, number), "]")},
		"uniqueItems, large strings":                      {`{"uniqueItems":true}`, array(100, func(i int) string { return `"` + strings.Repeat("a", 9_000) + fmt.Sprint(i) + `"` })},
		"contains in contains":                            {`{"contains":{"anyOf":[{"$ref":"#"},{"const":2}]},"minContains":0,"maxContains":1}`, nested(127, "[", array(30_000, number), "]")},
		"contains, failing everywhere":                    {`{"items":{"contains":{"minimum":1000000}}}`, array(300, func(int) string { return array(300, number) })},
		"dynamic references": {`{"$id":"https://example.com/a","$dynamicAnchor":"n","$ref":"b","$defs":{"b":{"$id":"b","$dynamicAnchor":"n",
			"anyOf":[{"items":{"$dynamicRef":"#n"}},{"items":{"$dynamicRef":"#n"}}]}}}`, nested(127, "[", `{"a":1}`, "]")},
		"dynamic reference to itself": {`{"$id":"https://example.com/a","$dynamicAnchor":"n","$ref":"b","$defs":{"b":{"$id":"b",
			"$defs":{"n":{"$dynamicAnchor":"n"}},"$dynamicRef":"#n"}}}`, `1`},
		"many resources in scope": {`{"$id":"https://example.com/0","$defs":{` + repeat(200, ",", func(i int) string {
			return fmt.Sprintf(`"%d":{"$id":"%d","$dynamicAnchor":"n","items":{"anyOf":[{"$ref":"%d"},{"$dynamicRef":"#n"}]}}`, i+1, i+1, (i+1)%200+1)
		}) + `},"$ref":"1"}`, nested(100, "[", array(1000, number), "]")},
		"unevaluatedProperties under many anyOf": {`{"unevaluatedProperties":false,"anyOf":[` + repeat(1000, ",", func(i int) string {
			return `{"patternProperties":{"":true}}`
		}) + `]}`, object(40_000)},
		"unevaluatedProperties in a chain": {`{"unevaluatedProperties":false,"$ref":"#/$defs/0","$defs":{` + repeat(500, ",", func(i int) string {
			return fmt.Sprintf(`"%d":{"patternProperties":{"k":true},"anyOf":[{"$ref":"#/$defs/%d"}]}`, i, i+1)
		}) + `,"500":{}}}`, object(40_000)},
		"unevaluatedItems in a chain": {`{"unevaluatedItems":false,"$ref":"#/$defs/0","$defs":{` + repeat(500, ",", func(i int) string {
			return fmt.Sprintf(`"%d":{"contains":true,"anyOf":[{"$ref":"#/$defs/%d"}]}`, i, i+1)
		}) + `,"500":{}}}`, array(90_000, number)},
		"unevaluatedProperties at every level": {`{"unevaluatedProperties":false,"properties":{"a":{"$ref":"#"}}}`, nested(127, `{"a":`, object(9000), "}")},
		"huge minLength":                       {`{"type":"string","minLength":1e300}`, `"a"`},
		"minLength on large strings":           {`{"allOf":[` + repeat(2000, ",", always(`{"minLength":5}`)) + `]}`, `"` + strings.Repeat("é", 500_000) + `"`},
		"huge minItems":                        {`{"minItems":900000000,"uniqueItems":true,"items":{"type":"array","minItems":100000}}`, `[]`},
		"nested minItems": {`{"$defs":{` + repeat(20, ",", func(i int) string {
			return fmt.Sprintf(`"%d":{"type":"array","minItems":1000,"items":{"$ref":"#/$defs/%d"}}`, i, i+1)
		}) + `,"20":{"type":"string","minLength":90000}},"$ref":"#/$defs/0"}`, `[]`},
		"long strings in an example":  {`{"type":"array","minItems":10000,"items":{"type":"string","minLength":90000}}`, `[]`},
		"many required names":         {`{"required":` + array(4000, func(i int) string { return fmt.Sprintf(`"r%d"`, i) }) + `}`, `{}`},
		"required names in all items": {`{"items":{"required":` + array(4000, func(i int) string { return fmt.Sprintf(`"r%d"`, i) }) + `}}`, array(50_000, always("{}"))},
		"dependentRequired": {`{"items":{"dependentRequired":{"a":` + array(4000, func(i int) string { return fmt.Sprintf(`"r%d"`, i) }) + `}}}`,
			array(20_000, always(`{"a":1}`))},
		"choices that multiply in an example": {`{"allOf":[` + repeat(30, ",", func(i int) string {
			return fmt.Sprintf(`{"anyOf":[{"properties":{"a":{"const":%d}}},{"properties":{"a":{"const":%d}}}]}`, i, i+100)
		}) + `],"required":["a"]}`, `{}`},
		"propertyNames":               {`{"propertyNames":{"pattern":"^(a|b|k.*)*$","maxLength":3}}`, object(45_000)},
		"long keys above many others": {`{"` + strings.Repeat("x", 50_000) + `":1,"properties":{"` + strings.Repeat("y", 10_000) + `":{"allOf":[` + repeat(1000, ",", always("{}")) + `]}}}`, `{}`},
		"deep paths in errors":        {`{"anyOf":[{"additionalProperties":{"$ref":"#"},"minProperties":2}]}`, nested(120, `{"`+strings.Repeat("k", 5000)+`":`, "1", "}")},
		"relative ids that add up": {`{"$id":"https://example.com/` + strings.Repeat("a", 2000) + `/","$defs":{` + repeat(1500, ",", func(i int) string {
			return fmt.Sprintf(`"%d":{"$id":"%d"}`, i, i)
		}) + `}}`, `1`},
		// The innermost comes first: a schema inside a compiled one is not compiled again.
		"overlapping schemas under an unknown keyword": {`{"x":` + nested(55, `{"not":`, `{"allOf":[`+repeat(1200, ",", always("{}"))+`]}`, `}`) +
			`,"allOf":[` + repeat(56, ",", func(i int) string { return `{"$ref":"#/x` + strings.Repeat("/not", 55-i) + `"}` }) + `]}`, `1`},
		"overlapping enums under an unknown keyword": {`{"x":` + nested(55, `{"not":`, `{"enum":`+array(4000, number)+`}`, `}`) +
			`,"allOf":[` + repeat(56, ",", func(i int) string { return `{"$ref":"#/x` + strings.Repeat("/not", 55-i) + `"}` }) + `]}`, `1`},
		"integers of a thousand digits":  {`{"items":{"type":"integer"}}`, array(90_000, always("1e-999"))},
		"enum of numbers 1e-999":         {`{"items":{"enum":` + array(4000, always("1e-998")) + `}}`, array(50_000, always("1e-999"))},
		"uniqueItems, numbers 1e-999":    {`{"uniqueItems":true}`, array(50_000, always("1e-999"))},
		"uniqueItems, hashes that agree": {`{"uniqueItems":true}`, array(1<<12, splitString(12))},
		"uniqueItems, 20 large items":    {`{"uniqueItems":true}`, array(20, func(i int) string { return array(4000, func(j int) string { return number(j / 3999 * i) }) })},
		"arrays that fail by their type": {`{"allOf":` + array(1500, always(`{"type":"object"}`)) + `}`, array(90_000, number)},
		"arrays in a nested allOf":       {nested(30, `{"allOf":[`, `{"type":"string"}`, `]}`), array(90_000, number)},
		"all items fail":                 {`{"items":{"type":"string"}}`, array(99_000, number)},
		"all items fail three times":     {`{"items":{"minimum":1e6,"multipleOf":200000,"enum":[-1]}}`, array(99_000, number)},
		"all items are forbidden":        {`{"items":false}`, array(99_000, number)},
		"all properties are forbidden":   {`{"allOf":` + array(900, always(`{"additionalProperties":false}`)) + `}`, object(30_000)},
		"long key above many values":     {`{"additionalProperties":{"items":{"type":"string"}}}`, `{"` + strings.Repeat("k", 400_000) + `":` + array(90_000, number) + `}`},
		"key above many values":          {`{"additionalProperties":{"items":{"type":"string"}}}`, `{"` + strings.Repeat("k", 600) + `":` + array(90_000, number) + `}`},
		"long const":                     {`{"items":{"const":"` + strings.Repeat("x", 60_000) + `"}}`, array(30_000, always(`"y"`))},
		"long pattern":                   {`{"items":{"pattern":"` + strings.Repeat("x", 15_000) + `"}}`, array(30_000, always(`"y"`))},
		"deep errors in a long array":    {`{"type":"array","minItems":3,"maxItems":0,"items":{"$ref":"#"}}`, nested(120, "[", array(20_000, number), "]")},
		"patternProperties that match": {`{"patternProperties":{` + repeat(800, ",", func(i int) string {
			return fmt.Sprintf(`"k|%d":{"type":"string"}`, i)
		}) + `}}`, object(5000)},
		"mistakes at a great depth":    {nested(60, `{"not":`, `{"allOf":`+array(1900, always(`{"type":5}`))+`}`, `}`), `1`},
		"subschemas at a great depth":  {nested(60, `{"not":`, `{"allOf":`+array(1900, always(`{}`))+`}`, `}`), `1`},
		"anchors at a great depth":     {nested(60, `{"not":`, `{"$anchor":"a","allOf":`+array(1900, always(`{"items":{"$ref":"#a"}}`))+`}`, `}`), `1`},
		"dynamic anchors, great depth": {nested(60, `{"not":`, `{"allOf":`+array(1900, func(i int) string { return fmt.Sprintf(`{"$dynamicAnchor":"a%d"}`, i) })+`}`, `}`), `1`},
		"dynamic anchors in use": {`{"$dynamicAnchor":"n","items":{"$dynamicRef":"#n"},"allOf":` + array(90, func(i int) string {
			return fmt.Sprintf(`{"$dynamicAnchor":"x%d"}`, i)
		}) + `}`, array(5000, always(array(10, number)))},
		"references to an enum":               {`{"enum":[` + nested(50, `{"not":`, `{"allOf":`+array(1900, always(`{"type":5}`))+`}`, `}`) + `],"allOf":[{"$ref":"#/enum/0"}]}`, `1`},
		"references to an enum with a format": {`{"enum":[{"format":"0","pattern":"` + strings.Repeat(`\\pL{1000}`, 400) + `"}],"allOf":[{"$ref":"#/enum/0"}]}`, `1`},
		"references in many spellings": {`{"$defs":{"aaaaaaaaaaaa":{"allOf":` + array(900, always(`{}`)) + `}},"allOf":` + array(900, func(i int) string {
			var name strings.Builder
			for bit := range 12 {
				name.WriteString([]string{"a", "%61"}[i>>bit&1])
			}
			return `{"$ref":"#/$defs/` + name.String() + `"}`
		}) + `}`, `1`},
		"steps of multipleOf that grow": {`{"allOf":` + array(1500, func(i int) string { return fmt.Sprintf(`{"multipleOf":%d1}`, i) }) + `}`, `1`},
		"open brackets":                 {`{"type":"object"}`, strings.Repeat("[", 1_000_000)},
		"open brackets in a text":       {`{"type":"object"}`, strings.Repeat("x [", 120) + strings.Repeat(" 1,", 300_000)},
		"half open objects":             {`{"type":"object"}`, strings.Repeat(`{"a":1 `, 140_000)},
		"broken objects":                {`{"type":"object"}`, strings.Repeat(`{"a":1,} `, 110_000)},
		"brackets in quotes":            {`{"type":"object"}`, strings.Repeat(`{"`, 500_000)},
		"single quotes everywhere":      {`{"type":"object"}`, strings.Repeat(`{' `, 330_000)},
		"many fences":                   {`{"type":"object"}`, strings.Repeat("```\n[1]\n```\n", 80_000)},
		"a million empty arrays":        {`{"type":"object"}`, array(340_000, always("[]"))},
		"many small objects":            {`{"type":"array"}`, array(140_000, always(`{"":0}`))},
		"as many objects as allowed":    {`{"type":"string"}`, array(24_000, always(`{"":0}`))},
		"more than a megabyte":          {`{"type":"object"}`, strings.Repeat(" ", 5_000_000)},
	}
}

// splitString returns items that differ, but that the library hashes alike: each is an array of strings that is made from
// one string by cutting it in other places.
func splitString(cuts int) func(i int) string {
	return func(i int) string {
		var out strings.Builder
		for bit := range cuts {
			out.WriteString("a")
			if i>>bit&1 == 1 {
				out.WriteString(`","`)
			} else {
				out.WriteString(`\u0003`)
			}
		}
		return `["` + out.String() + `a"]`
	}
}

// A hostileCase is a schema and an answer to it.
type hostileCase struct{ Schema, Answer string }
