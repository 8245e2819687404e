package auth

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	testSecret = "It's a Secret to Everybody"
	testBody   = "Hello, World!"
	// The signature that GitHub's documentation gives for this secret and body.
	testHex = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
)

func TestHMACAcceptsTheVectorGitHubDocuments(t *testing.T) {
	t.Parallel()
	h := http.Header{}
	h.Set("X-Hub-Signature-256", "sha256="+testHex)
	if !newHMAC(t, "x-hub-signature-256", testSecret, "sha256=").Verify(&Request{Header: h, Body: []byte(testBody)}).OK {
		t.Error("refused")
	}
}

func TestHMACVerify(t *testing.T) {
	t.Parallel()
	sum, err := hex.DecodeString(testHex)
	if err != nil {
		t.Fatal(err)
	}
	std, url := base64.StdEncoding.EncodeToString(sum), base64.URLEncoding.EncodeToString(sum)
	rawStd, rawURL := strings.TrimRight(std, "="), strings.TrimRight(url, "=")
	wrong := strings.Repeat("0", 64)

	for _, c := range []struct {
		name   string
		prefix string
		lines  []string
		want   Reason // none: the request is accepted
	}{
		{"lower hex", "", []string{testHex}, ""},
		{"upper hex", "", []string{strings.ToUpper(testHex)}, ""},
		{"mixed hex", "", []string{strings.ToUpper(testHex[:32]) + testHex[32:]}, ""},
		{"base64", "", []string{std}, ""},
		{"base64 without padding", "", []string{rawStd}, ""},
		{"base64url", "", []string{url}, ""},
		{"base64url without padding", "", []string{rawURL}, ""},
		{"space around", "", []string{" \t" + testHex + " "}, ""},
		{"prefix and hex", "sha256=", []string{"sha256=" + testHex}, ""},
		{"prefix and base64", "sha256=", []string{"sha256=" + std}, ""},
		{"space after prefix", "HMAC-SHA256 ", []string{"HMAC-SHA256  " + testHex}, ""},
		{"prefix with a comma", "v1,", []string{"v1," + wrong + ",v1," + std}, ""},
		{"list, first good", "v1=", []string{"v1=" + testHex + ",v1=" + wrong}, ""},
		{"list, last good", "v1=", []string{"v1=" + wrong + " , v1=" + testHex}, ""},
		{"list with other entries", "v1=", []string{"t=1614265330,v1=" + testHex + ",v0=" + wrong}, ""},
		{"list without prefix", "", []string{wrong + "," + testHex}, ""},
		{"encodings mixed in a list", "", []string{wrong + "," + url}, ""},
		{"second line", "", []string{wrong, testHex}, ""},
		{"eighth entry", "", []string{strings.Repeat(wrong+",", 7) + testHex}, ""},
		{"eighth line", "", append(slices.Repeat([]string{wrong}, 7), testHex), ""},

		{"ninth entry", "", []string{strings.Repeat(wrong+",", 8) + testHex}, SignatureWrong},
		{"ninth line", "", append(slices.Repeat([]string{wrong}, 8), testHex), SignatureWrong},
		{"ninth, lines and entries", "", []string{strings.Repeat(wrong+",", 4) + wrong, wrong + "," + wrong + "," + wrong, testHex}, SignatureWrong},
		{"ninth, malformed ones count", "v1=", []string{strings.Repeat("x,", 8) + "v1=" + testHex}, PrefixMissing("X-Signature", "v1=")},
		{"no header", "", nil, SignatureMissing("X-Signature")},
		{"no header, prefix", "sha256=", nil, SignatureMissing("X-Signature")},
		{"empty header", "", []string{""}, SignatureMissing("X-Signature")},
		{"empty header, prefix", "sha256=", []string{""}, SignatureMissing("X-Signature")},
		{"prefix alone", "sha256=", []string{"sha256="}, SignatureMalformed},
		{"commas alone", "", []string{",,,,"}, SignatureMalformed},
		{"wrong signature", "", []string{wrong}, SignatureWrong},
		{"prefix absent", "sha256=", []string{testHex}, PrefixMissing("X-Signature", "sha256=")},
		{"prefix in another case", "sha256=", []string{"SHA256=" + testHex}, PrefixMissing("X-Signature", "sha256=")},
		{"prefix not configured", "", []string{"sha256=" + testHex}, SignatureMalformed},
		{"prefix twice", "sha256=", []string{"sha256=sha256=" + testHex}, SignatureMalformed},
		{"prefix on the wrong entry", "v1=", []string{"v1=" + wrong + "," + testHex}, SignatureWrong},
		{"hex cut short", "", []string{testHex[:62]}, SignatureMalformed},
		{"hex and more", "", []string{testHex + "00"}, SignatureMalformed},
		{"half of the bytes", "", []string{testHex[:32]}, SignatureMalformed},
		{"hex split by a space", "", []string{testHex[:32] + " " + testHex[32:]}, SignatureMalformed},
		{"padding twice", "", []string{std + "="}, SignatureMalformed},
		{"padding of another kind", "", []string{rawStd + "."}, SignatureMalformed},
		{"stray bits at the end", "", []string{strayBits(std)}, SignatureMalformed},
		{"newline for padding", "", []string{rawStd + "\n"}, SignatureMalformed},
		{"the secret itself", "", []string{testSecret}, SignatureMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newHMAC(t, "X-Signature", testSecret, c.prefix)
			h := http.Header{}
			for _, v := range c.lines {
				h.Add("X-Signature", v)
			}
			got := m.Verify(&Request{Header: h, Body: []byte(testBody)})
			if got.OK != (c.want == "") || got.Reason != c.want || got.Missing != (c.want == SignatureMissing("X-Signature")) {
				t.Errorf("Verify(%q) = %+v, want %q", c.lines, got, c.want)
			}
		})
	}
}

// Stripe's header has the time of the signatures as one more entry.
func TestHMACTakesEightSignaturesBesideTheirTime(t *testing.T) {
	t.Parallel()
	now := time.Unix(1614265330, 0)
	m, err := NewHMAC(Signature{
		Header: "Stripe-Signature", Prefix: "v1=", Encoding: Hex,
		Signed: []Part{Time, Literal("."), Body}, Time: Timestamp{Entry: "t=", Tolerance: time.Minute},
	}, []byte(testSecret))
	if err != nil {
		t.Fatal(err)
	}
	at, wrong := "t=1614265330", "v1="+strings.Repeat("0", 64)
	good := "v1=" + hex.EncodeToString(sign(testSecret, "1614265330."+testBody))
	wrongs := slices.Repeat([]string{wrong}, 8)
	for _, c := range []struct {
		name    string
		entries []string
		want    Reason
	}{
		{"time first", slices.Concat([]string{at}, wrongs[:7], []string{good}), ""},
		{"time last", slices.Concat(wrongs[:7], []string{good, at}), ""},
		{"time in the middle", slices.Concat(wrongs[:3], []string{at}, wrongs[:4], []string{good}), ""},
		{"ninth", slices.Concat([]string{at}, wrongs, []string{good}), SignatureWrong},
		{"time twice", []string{at, at, good}, TimestampRepeated},
		{"another time after all", slices.Concat([]string{at}, wrongs[:7], []string{good, "t=1"}), TimestampRepeated},
		{"time alone", []string{at}, PrefixMissing("Stripe-Signature", "v1=")},
	} {
		for _, separator := range []string{",", ", "} {
			header := http.Header{"Stripe-Signature": {strings.Join(c.entries, separator)}}
			got := m.Verify(&Request{Header: header, Body: []byte(testBody), Now: now})
			if got.OK != (c.want == "") || got.Reason != c.want || got.Missing {
				t.Errorf("%s: got %+v, want %q", c.name, got, c.want)
			}
		}
	}
}

// What is signed is the id, the timestamp and the body with dots between them. If an id could hold dots, the beginning of a body could
// become the timestamp, and the true timestamp a part of the id.
func TestStandardRefusesIDsWithDots(t *testing.T) {
	t.Parallel()
	m, err := NewStandard("Webhook-", time.Minute, "whsec_a2V5")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1614265330, 0)
	const signed = "msg.1614265330.1614265331.{}"
	signature := "v1," + base64.StdEncoding.EncodeToString(sign("key", signed))
	for _, c := range []struct {
		id, timestamp, body string
		want                Reason
	}{
		{"msg", "1614265330", "1614265331.{}", ""},
		{"msg.1614265330", "1614265331", "{}", SignedAmbiguous("Webhook-Id", ".")},
	} {
		request := &Request{Now: now, Body: []byte(c.body),
			Header: http.Header{"Webhook-Id": {c.id}, "Webhook-Timestamp": {c.timestamp}, "Webhook-Signature": {signature}}}
		if got := m.Verify(request); got.OK != (c.want == "") || got.Reason != c.want || got.Missing {
			t.Errorf("%s %s %s: got %+v, want %q", c.id, c.timestamp, c.body, got, c.want)
		}
	}
	if headers, _ := m.Sign(&Request{Now: now, Header: http.Header{"Webhook-Id": {"a.b"}}}); headers != nil {
		t.Errorf("signed what it refuses: %v", headers)
	}
}

// strayBits returns another text which a lax decoder decodes to the same 32 bytes.
func strayBits(std string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	return std[:42] + string(alphabet[strings.IndexByte(alphabet, std[42])|1]) + "="
}

func TestDecodeSignatureKnowsOneAlphabetAtATime(t *testing.T) {
	t.Parallel()
	want := [sha256.Size]byte(bytes.Repeat([]byte{0xfb, 0xff}, 16))
	std, url := base64.StdEncoding.EncodeToString(want[:]), base64.URLEncoding.EncodeToString(want[:])
	for _, s := range []string{std, url} {
		var got [sha256.Size]byte
		if !decodeSignature(got[:], s, AnyEncoding) || got != want {
			t.Errorf("%s: %x", s, got)
		}
	}
	for _, mixed := range []string{std[:20] + url[20:], url[:20] + std[20:]} {
		var got [sha256.Size]byte
		if decodeSignature(got[:], mixed, AnyEncoding) {
			t.Errorf("%s: decoded", mixed)
		}
	}
}

func TestHMACRefusesEveryFlippedBit(t *testing.T) {
	t.Parallel()
	body := []byte(testBody)
	sum, _ := hex.DecodeString(testHex)
	m := newHMAC(t, "X-Signature", testSecret, "sha256=")

	good := http.Header{"X-Signature": {"sha256=" + testHex}}
	for i := range len(body) * 8 {
		if m.Verify(&Request{Header: good, Body: flipBit(body, i)}).OK {
			t.Errorf("bit %d of the body flipped: passed", i)
		}
	}

	for _, signature := range []string{
		testHex,
		strings.ToUpper(testHex),
		base64.StdEncoding.EncodeToString(sum),
		base64.RawStdEncoding.EncodeToString(sum),
		base64.URLEncoding.EncodeToString(sum),
		base64.RawURLEncoding.EncodeToString(sum),
	} {
		value := "sha256=" + signature
		if !m.Verify(&Request{Header: http.Header{"X-Signature": {value}}, Body: body}).OK {
			t.Fatalf("%s: refused as it is", value)
		}
		for i := range len(value) * 8 {
			flipped := string(flipBit([]byte(value), i))
			// Hex is read in any case, and one bit is the difference between a and A.
			sameHex := len(signature) == 64 && strings.HasPrefix(flipped, "sha256=") && strings.EqualFold(flipped, value)
			if got := m.Verify(&Request{Header: http.Header{"X-Signature": {flipped}}, Body: body}).OK; got != sameHex {
				t.Errorf("bit %d flipped, %q: Verify = %v", i, flipped, got)
			}
		}
	}
}

func TestHMACIsSpecificToItsSecretAndHeader(t *testing.T) {
	t.Parallel()
	h := http.Header{"X-Signature": {testHex}}
	for name, m := range map[string]*HMAC{
		"other secret": newHMAC(t, "X-Signature", testSecret+".", ""),
		"other header": newHMAC(t, "X-Signature-2", testSecret, ""),
		"zero value":   {},
	} {
		if m.Verify(&Request{Header: h, Body: []byte(testBody)}).OK {
			t.Errorf("%s: passed", name)
		}
	}
	empty := http.Header{"X-Signature": {hex.EncodeToString(sign("", ""))}, "": {hex.EncodeToString(sign("", ""))}}
	if new(HMAC).Verify(&Request{Header: empty}).OK {
		t.Error("the zero value accepts a signature made with no key")
	}
}

func TestNewHMACRefusesWhatCanNeverVerify(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, header, secret string }{
		{"no header", "", "s"},
		{"no secret", "X-Signature", ""},
		{"blank secret", "X-Signature", " \n"},
		{"space in header", "X Signature", "s"},
		{"colon in header", "X-Signature:", "s"},
		{"line break in header", "X-Signature\r\n", "s"},
		{"non-ASCII header", "X-Signatür", "s"},
		{"underscore in header", "X_Signature", "s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := NewHMAC(Signature{Header: c.header}, []byte(c.secret)); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestHMACServesManyGoroutines(t *testing.T) {
	t.Parallel()
	m := newHMAC(t, "X-Signature", testSecret, "")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			body := bytes.Repeat([]byte{byte(i)}, 1000+i)
			good := http.Header{"X-Signature": {hex.EncodeToString(sign(testSecret, string(body)))}}
			bad := http.Header{"X-Signature": {testHex}}
			for range 200 {
				if !m.Verify(&Request{Header: good, Body: body}).OK || m.Verify(&Request{Header: bad, Body: body}).OK {
					t.Error("wrong verdict")
					return
				}
			}
		})
	}
	wg.Wait()
}

func FuzzVerify(f *testing.F) {
	sum, _ := hex.DecodeString(testHex)
	for _, v := range []string{
		testHex, "sha256=" + testHex, base64.StdEncoding.EncodeToString(sum), base64.RawURLEncoding.EncodeToString(sum),
		"v1=" + testHex + ",v1=" + testHex, "", ",", "sha256=", " , ,", "v1,", "t=1,v1=x", strings.Repeat("A", 43), strings.Repeat("=", 44),
	} {
		f.Add(v, "sha256=", []byte(testBody))
		f.Add(v, "", []byte(testBody))
	}
	f.Fuzz(func(t *testing.T, value, prefix string, body []byte) {
		m, err := NewHMAC(Signature{Header: "X-Signature", Prefix: prefix}, []byte(testSecret))
		if err != nil {
			t.Fatal(err)
		}
		prefix = strings.TrimSpace(prefix)
		sum := sign(testSecret, string(body))
		spellings := []string{
			hex.EncodeToString(sum), strings.ToUpper(hex.EncodeToString(sum)),
			base64.StdEncoding.EncodeToString(sum), base64.RawStdEncoding.EncodeToString(sum),
			base64.URLEncoding.EncodeToString(sum), base64.RawURLEncoding.EncodeToString(sum),
		}

		correct := strings.Contains(strings.ToLower(value), spellings[0])
		for _, s := range spellings[2:] {
			correct = correct || strings.Contains(value, s)
		}
		if m.Verify(&Request{Header: http.Header{"X-Signature": {value}}, Body: body}).OK && (!correct || !strings.Contains(value, prefix)) {
			t.Errorf("%q passed", value)
		}

		for _, s := range spellings {
			// Whatever stands in other lines cannot spoil a good one, unless it uses up the tries.
			if !m.Verify(&Request{Header: http.Header{"X-Signature": {prefix + s, value}}, Body: body}).OK {
				t.Errorf("%q before %q refused", prefix+s, value)
			}
			if strings.Count(value, ",") < maxSignatures-1 && !m.Verify(&Request{Header: http.Header{"X-Signature": {value, prefix + s}}, Body: body}).OK {
				t.Errorf("%q after %q refused", prefix+s, value)
			}
		}
	})
}

func BenchmarkHMACVerify(b *testing.B) {
	for name, size := range map[string]int{"100B": 100, "20KB": 20 << 10} {
		b.Run(name, func(b *testing.B) {
			body := bytes.Repeat([]byte("x"), size)
			m, err := NewHMAC(Signature{Header: "X-Hub-Signature-256", Prefix: "sha256="}, []byte(testSecret))
			if err != nil {
				b.Fatal(err)
			}
			h := http.Header{"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(sign(testSecret, string(body)))}}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if !m.Verify(&Request{Header: h, Body: body}).OK {
					b.Fatal("refused")
				}
			}
		})
	}
}

// BenchmarkSHA256 is what BenchmarkHMACVerify is to be held against.
func BenchmarkSHA256(b *testing.B) {
	body := bytes.Repeat([]byte("x"), 20<<10)
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		sha256.Sum256(body)
	}
}

func newHMAC(t *testing.T, header, secret, prefix string) *HMAC {
	t.Helper()
	m, err := NewHMAC(Signature{Header: header, Prefix: prefix}, []byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func sign(secret, body string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return mac.Sum(nil)
}

// flipBit returns a copy of b with one bit flipped.
func flipBit(b []byte, bit int) []byte {
	b = slices.Clone(b)
	b[bit/8] ^= 1 << (bit % 8)
	return b
}

func TestHMACSignsWhatItAccepts(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "sha256=", "v0, "} {
		m, err := NewHMAC(Signature{Header: "x-signature", Prefix: prefix}, []byte("s3cret"))
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range []string{"", "{}", "{\"a\": 1}\n"} {
			headers, _ := m.Sign(&Request{Body: []byte(body)})
			if len(headers) != 1 {
				t.Fatalf("got %v", headers)
			}
			name, value := headers[0].Name, headers[0].Value
			header := http.Header{name: {value}}
			if name != "X-Signature" || !strings.HasPrefix(value, strings.TrimSpace(prefix)) || !m.Verify(&Request{Header: header, Body: []byte(body)}).OK {
				t.Errorf("prefix %q, body %q: %s: %s is refused", prefix, body, name, value)
			}
			if m.Verify(&Request{Header: header, Body: []byte(body + " ")}).OK {
				t.Errorf("prefix %q: the signature of %q is good for another body", prefix, body)
			}
		}
	}
	if headers, _ := new(HMAC).Sign(new(Request)); headers != nil {
		t.Errorf("the zero value signs: %v", headers)
	}
}
