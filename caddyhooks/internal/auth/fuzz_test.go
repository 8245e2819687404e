package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math"
	"net/http"
	neturl "net/url"
	"strings"
	"testing"
	"time"
)

var fuzzNow = time.Unix(1_700_000_000, 0)

// fuzzed are verifiers of all kinds, with the headers that they read.
func fuzzed(t testing.TB) map[string]struct {
	Verifier
	headers []string
} {
	t.Helper()
	must := func(v Verifier, err error) Verifier {
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	key := []byte("key")
	stripe := Signature{
		Header: "Stripe-Signature", Prefix: "v1=", Encoding: Hex,
		Signed: []Part{Time, Literal("."), Body}, Time: Timestamp{Entry: "t=", Tolerance: time.Minute},
	}
	inBody := Signature{Header: "Linear-Signature", Encoding: Hex, Time: Timestamp{Member: "webhookTimestamp", Tolerance: time.Minute}}
	source := Signature{Header: "X-Sig", Algorithm: SHA512, Signed: []Part{SourceOf(func(dst []byte, req *Request, _ string) ([]byte, string) {
		values := req.Header["X-Time"]
		if len(values) == 0 {
			return dst, "X-Time"
		}
		return append(append(dst, values[0]...), req.Body...), ""
	})}, Time: Timestamp{Header: "X-Time", Tolerance: time.Minute}}
	webhook, err := NewStandard("Webhook-", time.Minute, "whsec_a2V5")
	if err != nil {
		t.Fatal(err)
	}
	private := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	ed, err := NewEd25519("X-Signature-Ed25519", Timestamp{Header: "X-Signature-Timestamp", Tolerance: time.Minute}, hex.EncodeToString(private.Public().(ed25519.PublicKey)))
	if err != nil {
		t.Fatal(err)
	}
	twilio, err := NewTwilio("key")
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(must256(t).Public())
	if err != nil {
		t.Fatal(err)
	}
	ecdsaKeys, err := NewECDSA("X-Signature-Ecdsa", Timestamp{Header: "X-Time", Tolerance: time.Minute}, base64.StdEncoding.EncodeToString(der))
	if err != nil {
		t.Fatal(err)
	}
	mailgun, err := NewMailgun(time.Minute, key)
	if err != nil {
		t.Fatal(err)
	}
	url := Signature{Header: "X-Sig", Encoding: Base64, Signed: []Part{URL(strings.NewReplacer("%3A", ":")), Body, Time},
		Time: Timestamp{Header: "X-Time", Format: Milliseconds, Tolerance: time.Minute}}
	rfc3339 := Signature{Header: "X-Sig", Prefix: "v0 ", Signed: []Part{Time, Body}, Time: Timestamp{Entry: "t=", Format: RFC3339, Tolerance: time.Minute}}
	hmacOf := func(s Signature) Verifier {
		m, err := NewHMAC(s, key)
		return must(m, err)
	}
	return map[string]struct {
		Verifier
		headers []string
	}{
		"entry":    {hmacOf(stripe), []string{"Stripe-Signature"}},
		"body":     {hmacOf(inBody), []string{"Linear-Signature"}},
		"source":   {hmacOf(source), []string{"X-Sig", "X-Time"}},
		"sha1":     {hmacOf(Signature{Header: "X-Sig", Algorithm: SHA1}), []string{"X-Sig"}},
		"standard": {NewFirstSent(webhook, NewHeaderToken("X-Gitlab-Token", "key")), []string{"Webhook-Signature", "Webhook-Timestamp", "Webhook-Id", "X-Gitlab-Token"}},
		"ed25519":  {ed, []string{"X-Signature-Ed25519", "X-Signature-Timestamp"}},
		"twilio":   {twilio, []string{"X-Twilio-Signature"}},
		"token":    {NewHeaderToken("X-Token", "key"), []string{"X-Token"}},
		"url":      {hmacOf(url), []string{"X-Sig", "X-Time"}},
		"rfc3339":  {hmacOf(rfc3339), []string{"X-Sig"}},
		"ecdsa":    {ecdsaKeys, []string{"X-Signature-Ecdsa", "X-Time"}},
		"mailgun":  {mailgun, nil},
		"graph":    {NewClientStates("a long key"), nil},
		"query":    {NewQueryToken("access_token", "a long key"), []string{"Authorization", "X-Service-Token"}},
	}
}

func must256(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Whatever is in the headers and the body, nobody gets in without the secret, and nothing panics.
func FuzzHeadersOfSenders(f *testing.F) {
	for _, v := range []string{
		"", "t=1700000000,v1=" + testHex, "v1=" + testHex + ",t=1700000000", "t=,v1=,t=", "v1,AAAA v1,", "v1,", ",,,", "1700000000", "-1", "99999999999999999999", "1e9", " ",
		strings.Repeat("0", 128), strings.Repeat("A", 86) + "==", strings.Repeat("v1,A ", 20),
	} {
		f.Add(v, "1700000000", "msg_1", `{"webhookTimestamp":1700000000000}`, "https://example.com/a?b=c")
		f.Add(v, v, v, "a=b&a=c", "http://example.com:80?bodySHA256="+v)
		f.Add("v0 "+v+",t=2023-11-14T22:13:20Z", "1700000000000", v, `{"signature":{"timestamp":"1700000000","token":"t","signature":"`+testHex+`"}}`, "")
		f.Add(v, v, v, "timestamp=1700000000&token=t&signature="+testHex, "https://example.com?access_token=a")
		f.Add(v, v, v, `{"value":[{"clientState":"k"},{"clientState":"key"}]}`, "")
	}
	verifiers := fuzzed(f)
	f.Fuzz(func(t *testing.T, first, second, third, body, url string) {
		for name, v := range verifiers {
			header := make(http.Header)
			for i, value := range []string{first, second, third} {
				if i < len(v.headers) {
					header[v.headers[i]] = []string{value}
				}
			}
			req := &Request{Header: header, Body: []byte(body), Now: fuzzNow, URL: func() string { return url }, Query: func() neturl.Values {
				_, query, _ := strings.Cut(url, "?")
				values, _ := neturl.ParseQuery(query)
				return values
			}}
			got := v.Verify(req)
			if isToken := name == "token" && strings.Trim(first, " \t") == "key"; got.OK != isToken || got.OK != (got.Reason == "") {
				t.Errorf("%s: %q, %q, %q: got %+v", name, first, second, third, got)
			}
			if timed, ok := v.Verifier.(Timed); ok {
				timed.Content(req)
			}
		}
	})
}

// A request that is signed here is taken, and one with another body is not.
func FuzzSignersOfSenders(f *testing.F) {
	f.Add("{}", "https://example.com/a")
	f.Add("a=b&a=a&c=%20", "http://example.com:8080/a?b")
	f.Add("", "")
	verifiers := fuzzed(f)
	f.Fuzz(func(t *testing.T, body, url string) {
		for name, v := range verifiers {
			signer, ok := v.Verifier.(Signer)
			if !ok || name == "body" || name == "twilio" && !strings.HasPrefix(url, "https://") {
				continue
			}
			req := &Request{Header: make(http.Header), Body: []byte(body), Now: fuzzNow, URL: func() string { return url }}
			headers, called := signer.Sign(req)
			if headers == nil {
				continue
			}
			for _, h := range headers {
				req.Header.Set(h.Name, h.Value)
			}
			req.URL = func() string { return called }
			if got := v.Verify(req); !got.OK {
				t.Errorf("%s: %q to %q: got %+v", name, body, called, got)
			}
			if name != "twilio" { // which does not tell names and values apart
				req.Body = append(req.Body, 'x')
				if v.Verify(req).OK {
					t.Errorf("%s: %q: another body is taken", name, body)
				}
			}
		}
	})
}

func TestTimestamps(t *testing.T) {
	t.Parallel()
	stamp := Timestamp{Header: "X-Time", Tolerance: time.Minute}
	now := fuzzNow.Unix()
	for text, want := range map[string]Reason{
		fmt.Sprint(now): "", fmt.Sprint(now - 60): "", fmt.Sprint(now + 60): "", "0" + fmt.Sprint(now): "",
		fmt.Sprint(now - 61):             "the timestamp is older than 1m0s",
		fmt.Sprint(now + 61):             "the timestamp is more than 1m0s ahead of the clock here",
		"0":                              "the timestamp is older than 1m0s",
		"999999999999999":                "the timestamp is more than 1m0s ahead of the clock here",
		fmt.Sprint(fuzzNow.UnixMilli()):  TimestampIn(Milliseconds, Seconds),
		"":                               SignedMissing("X-Time"),
		fmt.Sprint(int64(math.MaxInt64)): TimestampMalformed,
		"-1":                             TimestampMalformed,
		"+" + fmt.Sprint(now):            TimestampMalformed,
		fmt.Sprint(now) + ".5":           TimestampMalformed,
		"1.7e9":                          TimestampMalformed,
		"0x6553f100":                     TimestampMalformed,
		"2023-11-14T22:13:20Z":           TimestampIn(RFC3339, Seconds),
		"2022-11-14T22:13:20Z":           TimestampMalformed,
		strings.Repeat("9", 1000):        TimestampMalformed,
		"١٧٠٠٠٠٠٠٠٠":                     TimestampMalformed,
	} {
		req := &Request{Header: http.Header{"X-Time": {text}}, Now: fuzzNow.Add(500 * time.Millisecond)}
		if fmt.Sprint(now+60) == text {
			req.Now = fuzzNow
		}
		if _, got := stamp.checkHeaders(req, ""); got.Reason != want || got.OK != (want == "") {
			t.Errorf("%q: got %+v, want %q", text, got, want)
		}
	}
	twice := &Request{Header: http.Header{"X-Time": {fmt.Sprint(now), fmt.Sprint(now)}}, Now: fuzzNow}
	if _, got := stamp.checkHeaders(twice, ""); got.Reason != TimestampRepeated {
		t.Errorf("two timestamps: got %+v", got)
	}
	entries := Timestamp{Entry: "t=", Tolerance: time.Minute}
	twice.Header = http.Header{"X-Sig": {fmt.Sprintf("t=%d,v1=a,t=%d", now, now)}}
	if _, got := entries.checkHeaders(twice, "X-Sig"); got.Reason != TimestampRepeated {
		t.Errorf("two entries: got %+v", got)
	}
}

func TestTimestampsInBodies(t *testing.T) {
	t.Parallel()
	stamp := Timestamp{Member: "at", Tolerance: time.Minute}
	for body, ok := range map[string]bool{
		`{"at":1700000000000}`: true, `{"at":1699999940000}`: true, `{"at":1699999939000}`: false, `{"at":1700000061000}`: false, `{"at":1700000000}`: false,
		`{"at":"1700000000000"}`: false, `{"at":null}`: false, `{}`: false, `[]`: false, `x`: false, `{"at":1.7e12}`: false, `{"at":-1}`: false, `{"at":1700000000000}}`: false,
	} {
		if got := stamp.checkBody(&Request{Body: []byte(body), Now: fuzzNow}); got.OK != ok {
			t.Errorf("%s: got %+v", body, got)
		}
	}
}

func TestTwilioBodiesOtherThanForms(t *testing.T) {
	t.Parallel()
	twilio, err := NewTwilio("other", "token")
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"a":1}`
	sum := sha256.Sum256([]byte(body))
	signer, _ := NewTwilio("token")
	req := &Request{Header: make(http.Header), Body: []byte(body), Now: fuzzNow, URL: func() string { return "https://example.com:8443/a?b=c" }}
	headers, called := signer.Sign(req)
	if called != "https://example.com:8443/a?b=c&bodySHA256="+hex.EncodeToString(sum[:]) {
		t.Fatalf("the URL is %s", called)
	}
	req.Header.Set(headers[0].Name, headers[0].Value)
	for url, ok := range map[string]bool{
		called: true, strings.Replace(called, ":8443", "", 1): false, strings.Replace(called, "https", "http", 1): false, strings.Replace(called, "b=c", "b=d", 1): false,
		called + "&bodySHA256=" + hex.EncodeToString(sum[:]): false, "https://example.com:8443/a?b=c": false, "": false, "://": false,
	} {
		req.URL = func() string { return url }
		if got := twilio.Verify(req); got.OK != ok {
			t.Errorf("%s: got %+v", url, got)
		}
	}
	req.URL, req.Body = func() string { return called }, []byte(`{"a":2}`)
	if got := twilio.Verify(req); got.Reason != BodyHashWrong {
		t.Errorf("another body: got %+v", got)
	}
}

// Twilio signs some URLs without the port that was called.
func TestTwilioURLsWithAndWithoutPort(t *testing.T) {
	t.Parallel()
	twilio, _ := NewTwilio("token")
	for signed, called := range map[string]string{
		"https://example.com/a": "https://example.com:443/a", "https://example.com:443/a": "https://example.com/a",
		"http://example.com:80?x": "http://example.com?x", "https://[2001:db8::1]/a": "https://[2001:db8::1]:8443/a",
		"https://[2001:db8::1]:443/a": "https://[2001:db8::1]/a",
	} {
		req := &Request{Header: make(http.Header), Body: []byte("A=b"), URL: func() string { return signed }}
		headers, _ := twilio.Sign(req)
		req.Header.Set(headers[0].Name, headers[0].Value)
		req.URL = func() string { return called }
		if got := twilio.Verify(req); !got.OK {
			t.Errorf("%s for %s: got %+v", called, signed, got)
		}
	}
}
