package form_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/form"
)

func TestFormBecomesAnObjectOfStrings(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"a=1&b=two+words&c=%C3%BC%26%3D": `{"a":"1","b":"two words","c":"ü\u0026="}`,
		"a=1&a=2&b=x&a=":                 `{"a":["1","2",""],"b":"x"}`,
		"a&b=&=c":                        `{"":"c","a":"","b":""}`,
		"&&a=b=c&":                       `{"a":"b=c"}`,
		"a%20b=1;2":                      `{"a b":"1;2"}`,
		"a=%00%0A":                       `{"a":"\u0000\n"}`,
		"payload=text":                   `{"payload":"text"}`,
		"payload=[1]":                    `{"payload":"[1]"}`,
		"payload={not+JSON}":             `{"payload":"{not JSON}"}`,
		`payload={"a":1}&b=2`:            `{"b":"2","payload":"{\"a\":1}"}`,
		`payload={"a":1}&payload=2`:      `{"payload":["{\"a\":1}","2"]}`,
		`Payload={"a":1}`:                `{"Payload":"{\"a\":1}"}`,
	} {
		value, payload, err := form.Decode([]byte(body), nil)
		got, _ := json.Marshal(value)
		if err != nil || string(got) != want || payload != nil {
			t.Errorf("%s: got %s, %q, %v, want %s", body, got, payload, err, want)
		}
	}
}

func TestPayloadOfAFormStandsForTheBody(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"payload=%7B%22a%22%3A+1.50%7D": `{"a": 1.50}`,
		`payload={"a":{"b":[]}}`:        `{"a":{"b":[]}}`,
		"&payload=%0A{}+&":              "\n{} ",
	} {
		value, payload, err := form.Decode([]byte(body), nil)
		if _, isObject := value.(map[string]any); err != nil || string(payload) != want || !isObject {
			t.Errorf("%s: got %v, %q, %v, want %q", body, value, payload, err, want)
		}
	}
	// JSON that has more than one reading is refused, as it is without a form.
	for body, want := range map[string]string{
		`payload={"a":1,"a":2}`: "the field payload: ",
		"payload=" + strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200): "the field payload: ",
	} {
		if _, _, err := form.Decode([]byte(body), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50s: %v", body, err)
		}
	}
}

func TestFormNamesItsMistake(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"":           "no fields",
		"&&":         "no fields",
		"a=1&b=%zz":  "the value of field 2: a % is followed by no two hexadecimal digits",
		"a=1&%=1":    "the name of field 2: a %",
		"a=%ff":      "the value of field 1: it is not UTF-8",
		"a=1&\xff=1": "the name of field 2: it is not UTF-8",
		"a=" + strings.Repeat("&a=", form.MaxFields): "more than 1000 fields",
	} {
		if _, _, err := form.Decode([]byte(body), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50s: got %v, want %q", body, err, want)
		}
	}
	if _, _, err := form.Decode([]byte("a="+strings.Repeat("&a=", form.MaxFields-1)), nil); err != nil {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "a=1&b=2&a=3", "payload=%7B%22a%22%3A1%7D", `payload={"a":1}&b`, "a=%zz", "%C3%BC=+", "&=&", "payload={", "a;b=c"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		value, payload, err := form.Decode(body, nil)
		if err != nil {
			if value != nil || payload != nil {
				t.Errorf("a value %v, %q with the error %v", value, payload, err)
			}
			return
		}
		object, ok := value.(map[string]any)
		if !ok {
			t.Fatalf("the form became a %T", value)
		}
		if payload != nil {
			if !json.Valid(payload) || len(payload) > len(body) {
				t.Errorf("the payload is %q", payload)
			}
			return
		}
		// It says what Go's own reader says, but for a ; in it.
		want, err := url.ParseQuery(strings.ReplaceAll(string(body), ";", "%3B"))
		if err != nil || len(want) != len(object) {
			t.Fatalf("%d names, want %d, %v", len(object), len(want), err)
		}
		for name, texts := range want {
			got := object[name]
			if text, single := got.(string); single {
				got = []any{text}
			}
			if fmt.Sprint(got) != fmt.Sprint(texts) {
				t.Errorf("%q is %v, want %v", name, got, texts)
			}
		}
	})
}
