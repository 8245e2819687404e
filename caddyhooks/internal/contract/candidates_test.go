package contract

import (
	"testing"
)

func TestAnswersYieldTheJSONThatWasMeant(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","required":["a"],"properties":{"a":{"type":"integer"}}}`
	for name, c := range map[string]struct{ answer, want string }{
		"plain":                              {`{"a":1}`, `{"a":1}`},
		"white space and a byte order mark":  {"\ufeff \n{\"a\":1}\r\n", `{"a":1}`},
		"kept as written":                    {`{"b": "<&>\u00e9",  "a":1.0}`, `{"b": "<&>\u00e9",  "a":1.0}`},
		"fenced":                             {"```json\n{\"a\":1}\n```", `{"a":1}`},
		"fenced in prose":                    {"Sure:\n\n  ```JSON\n{\"a\":1}\n  ```\nAnything else?", `{"a":1}`},
		"fenced with tildes":                 {"~~~\n{\"a\":1}\n~~~", `{"a":1}`},
		"last of several fences":             {"```\n{\"a\":1}\n```\nBetter:\n```\n{\"a\":2}\n```", `{"a":2}`},
		"last fence that is valid":           {"```\n{\"a\":1}\n```\nUsage:\n```sh\ncurl -d '{\"a\":3}'\n```\n```\n{\"b\":2}\n```", `{"a":1}`},
		"fence inside a string":              {"{\"a\":1,\"b\":\"```\\n{}\\n```\"}", "{\"a\":1,\"b\":\"```\\n{}\\n```\"}"},
		"prose around":                       {`The result is {"a":1}. Is that "ok"?`, `{"a":1}`},
		"braces in prose":                    {`I used {placeholder} and [x], so {"a":1} it is {see above}`, `{"a":1}`},
		"open brace in prose":                {`a smile :-{ and then {"a":1}`, `{"a":1}`},
		"open quote in prose":                {`it is 5" long { so {"a":1}`, `{"a":1}`},
		"last of several objects":            {`first {"a":1} then {"a":2}`, `{"a":2}`},
		"a list of things after it":          {`{"a":1} (see [1], [2])`, `{"a":1}`},
		"brackets in strings":                {`x {"a":1,"b":"}{]["} y`, `{"a":1,"b":"}{]["}`},
		"after thinking":                     {"<think>maybe {\"a\":7}?</think>\n{\"a\":1}", `{"a":1}`},
		"after thinking twice":               {"<think>{\"a\":7}</think>x</think> so: {\"a\":1}.", `{"a":1}`},
		"thinking inside a string":           {`{"a":1,"b":"</think>"}`, `{"a":1,"b":"</think>"}`},
		"not JSON":                           {`I cannot do that.`, ``},
		"empty":                              {``, ``},
		"single quotes":                      {`{'a': 1}`, ``},
		"trailing comma":                     {`{"a":1,}`, ``},
		"comment":                            {"{\"a\":1 // one\n}", ``},
		"cut off":                            {`{"list":[{"a":1},{"a":2}`, ``},
		"cut off in prose":                   {`Here: {"list":[{"a":1},{"a":2}`, ``},
		"part of a broken object":            {`{"list":[{"a":1}],}`, ``},
		"part of an object in single quotes": {`{'list': {"a":1}}`, ``},
		"part of an object without quotes":   {`{list: {"a":1}}`, ``},
		"part of a valid object":             {`x {"b":{"a":1}}`, ``},
		"key twice":                          {`{"a":1,"a":2}`, ``},
		"number out of bounds":               {`{"a":1e1000}`, ``},
		"half of a surrogate pair":           {`{"a":1,"b":"\ud800"}`, ``},
	} {
		v, err := compile(t, schema).judge(c.answer, answerBudget())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if string(v.json) != c.want {
			t.Errorf("%s: %q, want %q", name, v.json, c.want)
		}
		if v.json == nil && len(v.failures) == 0 {
			t.Errorf("%s: no reason is given", name)
		}
	}
}

func TestScalarsAndArraysAreAnswersToo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ schema, answer, want string }{
		{`{"type":"string"}`, ` "a" `, `"a"`},
		{`{"type":"string"}`, "```\n\"a\"\n```", `"a"`},
		{`{"type":"null"}`, `null`, `null`},
		{`{"type":"integer"}`, "```json\n42\n```", `42`},
		{`{"type":"array"}`, `The list: [1, 2]`, `[1, 2]`},
	} {
		v, err := compile(t, c.schema).judge(c.answer, answerBudget())
		if err != nil || string(v.json) != c.want {
			t.Errorf("%s: %q, %v", c.answer, v.json, err)
		}
	}
}

func TestTheRepairIsAboutTheLargestJSONOrTheWholeAnswer(t *testing.T) {
	t.Parallel()
	const schema = `{"type":"object","required":["a"]}`
	for _, c := range []struct{ answer, excerpt, failure string }{
		{`{"b":"long enough"} see [1]`, `{"b":"long enough"}`, `at the top level: lacks "a", which the schema requires`},
		{`no JSON here`, `no JSON here`, `at the top level: the answer is not a JSON value: a value must start here`},
		{`so: {"a":1,} ok`, `so: {"a":1,} ok`, `at the top level: the answer is not a JSON value: a key in double quotes must start here`},
		{`{"a":`, `{"a":`, `at the top level: the answer is not a JSON value: it ends too early`},
	} {
		v, err := compile(t, schema).judge(c.answer, answerBudget())
		if err != nil || v.excerpt != c.excerpt || v.failures[0].String() != c.failure {
			t.Errorf("%s: %q, %q, %v", c.answer, v.excerpt, v.failures, err)
		}
	}
}
