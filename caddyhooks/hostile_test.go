package caddyhooks_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// hostileSite has a hook of every kind, and one worker for wantNoTurn.
func hostileSite(t *testing.T, rn *hookstest.Runner) *hookstest.Server {
	s := hookstest.NewServer(t)
	s.Globals = behindProxy
	s.Load("respond elsewhere 418\n" + hookstest.Hooks(rn, `
		workers 1
		hook custom
		hook full {
			action agent
			template "{a}"
		}
		hook signed {
			auth hmac X-Sig secret
		}`))
	return s
}

// sendEverywhere sends a body to all kinds of hook, with good credentials.
func sendEverywhere(s *hookstest.Server, body string, check func(hook string, resp hookstest.Response)) {
	s.T.Helper()
	for _, hook := range []string{"wake", "agent", "custom", "full", "signed"} {
		check(hook, s.Post("/api/hooks/"+hook, body, "X-Sig", signature("secret", body)))
	}
}

func TestMalformedBodies(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hostileSite(t, rn)
	for _, c := range []struct{ name, body, word string }{
		{"empty", ``, "empty"},
		{"white space", " \n\t ", "ends too early"},
		{"a word", `hello`, "value"},
		{"a form", `text=hello&chatId=1`, "value"},
		{"cut off", `{"text":"a"`, "ends too early"},
		{"cut off in a string", `{"text":"a`, "ends too early"},
		{"cut off in an escape", `{"text":"a\`, "ends too early"},
		{"trailing comma", `{"text":"a","message":"a",}`, "key"},
		{"trailing data", `{"text":"a","message":"a"} x`, "after the end"},
		{"two documents", `{"text":"a","message":"a"}{"text":"b"}`, "after the end"},
		{"a null byte after it", "{\"text\":\"a\",\"message\":\"a\"}\x00", "after the end"},
		{"single quotes", `{'text':'a'}`, "double quotes"},
		{"no quotes", `{text:"a"}`, "double quotes"},
		{"comment", `{"text":"a" /* b */}`, "commas"},
		{"NaN", `{"text":NaN}`, "value"},
		{"leading zero", `{"text":"a","x":01}`, "commas"},
		{"plus sign", `{"text":"a","x":+1}`, "value"},
		{"control character in a string", "{\"text\":\"a\nb\"}", "control"},
		{"unknown escape", `{"text":"\x41"}`, "escape"},
		{"byte order mark", "\ufeff{\"text\":\"a\",\"message\":\"a\"}", "value"},
		{"invalid UTF-8", "{\"text\":\"\xff\xfe\",\"message\":\"\xff\"}", "UTF-8"},
		{"overlong UTF-8", "{\"text\":\"\xc0\xaf\"}", "UTF-8"},
		{"surrogate in UTF-8", "{\"text\":\"\xed\xa0\x80\"}", "UTF-8"},
		{"invalid UTF-8 in a key", "{\"\xff\":1,\"text\":\"a\",\"message\":\"a\"}", "UTF-8"},
		{"invalid UTF-8 further down", "{\"text\":\"a\",\"message\":\"a\",\"metadata\":{\"x\":[\"\xff\"]}}", "UTF-8"},
		{"lone surrogate", `{"text":"\ud800","message":"\ud800"}`, "surrogate"},
		{"reversed surrogates", `{"text":"\udc00\ud800","message":"a"}`, "surrogate"},
		{"duplicate key", `{"text":"a","message":"a","text":"b"}`, "twice"},
		{"duplicate key, escaped", `{"text":"a","message":"a","te\u0078t":"b"}`, "twice"},
		{"duplicate key further down", `{"text":"a","message":"a","metadata":{"x":1,"x":2}}`, "twice"},
		{"duplicate of an unknown key", `{"text":"a","message":"a","z":1,"z":1}`, "twice"},
		{"129 levels", `{"text":"a","message":"a","x":` + strings.Repeat("[", 128) + strings.Repeat("]", 128) + `}`, "128"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sendEverywhere(s, c.body, func(hook string, resp hookstest.Response) {
				resp.WantError(t, 400, "JSON", c.word)
				if resp.Status != 400 {
					t.Errorf("that was %s", hook)
				}
			})
		})
	}
	rn.WantNoTurn(s)
}

func TestNestingOf100000Levels(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hostileSite(t, rn)
	for name, body := range map[string]string{
		"arrays":             strings.Repeat("[", 100_000),
		"objects":            strings.Repeat(`{"a":`, 100_000),
		"a metadata's":       `{"text":"a","message":"a","metadata":{"a":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}}`,
		"a schema's":         `{"message":"a","syncResponse":true,"responseJsonSchema":` + strings.Repeat(`{"not":`, 100_000) + `{}` + strings.Repeat(`}`, 100_000) + `}`,
		"arrays with spaces": strings.Repeat(" [ ", 100_000),
	} {
		t.Run(name, func(t *testing.T) {
			for _, hook := range []string{"wake", "agent"} {
				s.Post("/api/hooks/"+hook, body).WantError(t, 400, "128")
			}
			s.Post("/api/hooks/custom", body).WantError(t, 413, "65536")
		})
	}
	s.PatchSettings(`{"maxPayloadSize":"1MB"}`)
	s.Post("/api/hooks/custom", strings.Repeat("[", 100_000)).WantError(t, 400, "128")
	rn.WantNoTurn(s)
}

func TestDocumentsThatAreNoObjects(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hostileSite(t, rn)
	for _, body := range []string{`null`, `[]`, `[{"text":"a","message":"a"}]`, `"text"`, `17`, `-0.5e3`, `true`} {
		t.Run(body, func(t *testing.T) {
			for _, hook := range []string{"wake", "agent"} {
				s.Post("/api/hooks/"+hook, body).WantError(t, 400, "object")
			}
		})
	}
	rn.WantNoTurn(s)
}

func TestFieldsOfWrongTypes(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hostileSite(t, rn)
	values := map[string]string{"string": `"x"`, "number": `7`, "boolean": `true`, "array": `["x"]`, "object": `{"x":1}`}
	for _, c := range []struct{ hook, field, kind, word string }{
		{"wake", "text", "string", "a string"},
		{"wake", "chatId", "string", "a string"},
		{"wake", "metadata", "object", "an object"},
		{"agent", "message", "string", "a string"},
		{"agent", "chatId", "string", "a string"},
		{"agent", "name", "string", "a string"},
		{"agent", "model", "string", "a string"},
		{"agent", "memoryPreset", "string", "a string"},
		{"agent", "syncResponse", "boolean", "true or false"},
		{"agent", "responseJsonSchema", "object", "an object"},
		{"agent", "callbackUrl", "string", "a string"},
		{"agent", "deliver", "boolean", "true or false"},
		{"agent", "channel", "string", "a string"},
		{"agent", "to", "string", "a string"},
		{"agent", "timeoutSeconds", "number", "a whole number"},
		{"agent", "metadata", "object", "an object"},
	} {
		t.Run(c.hook+" "+c.field, func(t *testing.T) {
			for kind, value := range values {
				if kind == c.kind {
					continue
				}
				body := map[string]json.RawMessage{"text": json.RawMessage(`"a"`), "message": json.RawMessage(`"a"`)}
				body[c.field] = json.RawMessage(value)
				s.Post("/api/hooks/"+c.hook, hookstest.AsJSON(t, body)).WantError(t, 400, "field "+c.field, c.word)
			}
		})
	}
	t.Run("agent responseValidationModelTier", func(t *testing.T) {
		for kind, value := range values {
			if kind != "string" {
				s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true,"responseJsonSchema":{"type":"object"},"responseValidationModelTier":`+value+`}`).
					WantError(t, 400, "field responseValidationModelTier", "a string")
			}
		}
	})
	rn.WantNoTurn(s)
}

func TestFieldNamesAreMatchedExactly(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hostileSite(t, rn)
	s.Post("/api/hooks/wake", `{"Text":"a","TEXT":"b"}`).WantError(t, 400, "text")
	s.Post("/api/hooks/agent", `{"Message":"a"}`).WantError(t, 400, "message")
	rn.WantNoTurn(s)
	s.Post("/api/hooks/agent", `{"message":"a","Model":"deep","chatid":"x","SYNCRESPONSE":true}`)
	if tn := rn.Next(); tn.Body["tier"] != nil || !hookstest.FreshChatPattern.MatchString(tn.Text("chatId")) {
		t.Errorf("the runner got %v", tn.Body)
	}
}

func TestHugeNumbers(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hostileSite(t, rn)
	digits := strings.Repeat("9", 50_000)
	for _, number := range []string{"1e999999999", "-1e-999999999", digits, "0." + digits, "1e" + digits} {
		name := fmt.Sprintf("%.20s", number)
		t.Run("as timeoutSeconds "+name, func(t *testing.T) {
			s.Post("/api/hooks/agent", `{"message":"a","timeoutSeconds":`+number+`}`).WantError(t, 400, "timeoutSeconds")
		})
		t.Run("as chatId "+name, func(t *testing.T) {
			s.Post("/api/hooks/wake", `{"text":"a","chatId":`+number+`}`).WantError(t, 400, "chatId")
		})
		t.Run("in a schema "+name, func(t *testing.T) {
			s.Post("/api/hooks/agent", `{"message":"a","syncResponse":true,"responseJsonSchema":{"maximum":`+number+`}}`).
				WantError(t, 400, "responseJsonSchema", "number")
		})
	}
	rn.WantNoTurn(s)
	t.Run("are passed on as they are", func(t *testing.T) {
		s.Post("/api/hooks/full", `{"a":1e999999999}`)
		if got := rn.Next().Text("message"); got != "1e999999999" {
			t.Errorf("got %q", got)
		}
		s.Post("/api/hooks/wake", `{"text":"a","metadata":{"a":1e999999999}}`)
		if got := hookstest.AsJSON(t, rn.Next().Body["metadata"]); got != `{"a":1e999999999}` {
			t.Errorf("got %s", got)
		}
	})
}

func TestBodiesOf10MB(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hostileSite(t, rn)
	body := `{"text":"` + strings.Repeat("x", 10<<20) + `"}`
	for hook, limit := range map[string]string{"wake": "1048576", "agent": "1048576", "custom": "65536", "signed": "65536"} {
		t.Run(hook, func(t *testing.T) {
			// The answer may come before all has been sent, and the connection is closed then; so it is read by hand.
			conn := dial(t, s)
			go func() {
				_, _ = fmt.Fprintf(conn, "POST /api/hooks/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", hook, hookstest.Token, len(body))
				_, _ = io.WriteString(conn, body)
			}()
			readAnswer(t, conn).WantError(t, 413, limit)
		})
		t.Run(hook+" without a length", func(t *testing.T) {
			conn := dial(t, s)
			go func() {
				_, _ = fmt.Fprintf(conn, "POST /api/hooks/%s HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", hook, hookstest.Token, len(body))
				_, _ = io.WriteString(conn, body+"\r\n0\r\n\r\n")
			}()
			readAnswer(t, conn).WantError(t, 413, limit)
		})
	}
	t.Run("that are a terabyte as they are announced", func(t *testing.T) {
		conn := dial(t, s)
		_, _ = fmt.Fprintf(conn, "POST /api/hooks/wake HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\nContent-Length: 999999999999\r\n\r\n%s", hookstest.Token, body[:512<<10])
		readAnswer(t, conn).WantError(t, 413, "1048576")
	})
	rn.WantNoTurn(s)
}

// dial opens a connection to the site, which is closed when the test ends.
func dial(t testing.TB, s *hookstest.Server) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", "127.0.0.1:"+s.Port)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn
}

func readAnswer(t testing.TB, conn net.Conn) hookstest.Response {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("reading the answer: %v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("reading the answer: %v", err)
	}
	return hookstest.Response{Status: resp.StatusCode, Header: resp.Header, Body: string(body)}
}

func TestBodiesThatBreakOff(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hostileSite(t, rn)
	head := func(hook, more string) string {
		return "POST /api/hooks/" + hook + " HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + hookstest.Token + "\r\nX-Sig: " +
			signature("secret", `{"text":"a"}`) + "\r\n" + more + "\r\n\r\n"
	}
	for name, request := range map[string]string{
		"in the middle":          head("wake", "Content-Length: 100") + `{"text":"a"}`,
		"before the first byte":  head("agent", "Content-Length: 100"),
		"in the middle, signed":  head("signed", "Content-Length: 100") + `{"text":"a"}`,
		"in a chunk":             head("wake", "Transfer-Encoding: chunked") + "64\r\n" + `{"text":"a"}`,
		"after a chunk":          head("wake", "Transfer-Encoding: chunked") + "c\r\n" + `{"text":"a"}` + "\r\n",
		"with a length too high": head("custom", "Content-Length: 13") + `{"text":"a"}`,
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial(t, s)
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			readAnswer(t, conn).WantError(t, 400, "broke off")
		})
		t.Run(name+", and the sender is gone", func(t *testing.T) {
			conn := dial(t, s)
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			conn.Close()
		})
	}
	t.Run("with a bad chunk", func(t *testing.T) {
		conn := dial(t, s)
		_, _ = io.WriteString(conn, head("wake", "Transfer-Encoding: chunked")+"zz\r\n"+`{"text":"a"}`)
		readAnswer(t, conn).WantError(t, 400, "broke off")
	})
	rn.WantNoTurn(s)
}

func TestSlowSendersHoldUpNobody(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hostileSite(t, rn)
	for range 100 {
		conn := dial(t, s)
		_, _ = io.WriteString(conn, "POST /api/hooks/wake HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "+hookstest.Token+"\r\nContent-Length: 12\r\n\r\n{\"te")
	}
	rn.WantNoTurn(s)

	t.Run("and may be slow", func(t *testing.T) {
		conn := dial(t, s)
		_, _ = io.WriteString(conn, "POST /api/hooks/wake HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "+hookstest.Token+"\r\nContent-Length: 12\r\n\r\n")
		for _, c := range []byte(`{"text":"a"}`) {
			_, _ = conn.Write([]byte{c})
		}
		if resp := readAnswer(t, conn); resp.Status != 200 {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
		if got := rn.Next().WakeText(t); got != "a" {
			t.Errorf("got %q", got)
		}
	})
}

func TestPathsThatAreNoHooks(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hostileSite(t, rn)
	const body = `{"text":"a","message":"a"}`
	for _, path := range []string{
		"/api/hooks", "/api/hooks/", "/api/hooks//", "/api/hooks/unknown", "/api/hooks/wake/", "/api/hooks/agent/", "/api/hooks/custom/",
		"/api/hooks//wake", "/api/hooks/wake//", "/api/hooks/wake/agent", "/api/hooks/Wake", "/api/hooks/AGENT", "/api/hooks/Custom",
		"/api/hooks/custom%2F", "/api/hooks/%2Fcustom", "/api/hooks/x%2Fcustom", "/api/hooks/custom%00", "/api/hooks/custom%20", "/api/hooks/%20custom",
		"/api/hooks/cust%C3%B6m", "/api/hooks/%FF", "/api/hooks/../hooks/wake", "/api/hooks/./wake", "/api/hooks/%2e%2e/hooks/wake", "/api/hooks/custom;x=1", "/api/hooks/*", "/api/hooks/{name}",
		"/api/hooks/" + strings.Repeat("a", 10_000),
	} {
		t.Run(fmt.Sprintf("%.60s", path), func(t *testing.T) {
			for _, method := range []string{"POST", "GET", "DELETE"} {
				conn := dial(t, s)
				_, _ = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", method, path, s.Port, hookstest.Token, len(body), body)
				readAnswer(t, conn).WantError(t, 404)
			}
		})
	}
	// Those are none of our business.
	for _, path := range []string{"/", "/api", "/api/", "/api/hook", "/api/hooksx", "/api/hooksx/wake", "/API/HOOKS/wake", "/x/api/hooks/wake", "//api/hooks/wake", "/api//hooks/wake"} {
		t.Run(path, func(t *testing.T) {
			conn := dial(t, s)
			_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", path, s.Port, hookstest.Token, len(body), body)
			if resp := readAnswer(t, conn); resp.Status != 418 || resp.Body != "elsewhere" {
				t.Errorf("got %d %s", resp.Status, resp.Body)
			}
		})
	}
	rn.WantNoTurn(s)
	t.Run("a query makes no difference", func(t *testing.T) {
		if resp := s.Post("/api/hooks/wake?chatId=x&text=y", `{"text":"a"}`); resp.Status != 200 || resp.Field(t, "chatId") != "webhook:default" {
			t.Errorf("got %d %s", resp.Status, resp.Body)
		}
	})
}

func TestStrangeCredentials(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hostileSite(t, rn)
	good := "Bearer " + hookstest.Token
	for i, c := range []struct {
		name   string
		lines  []string
		status int
	}{
		{"none", nil, 401},
		{"repeated, one of them good", []string{"Authorization: Bearer wrong", "Authorization: " + good}, 200},
		{"repeated and wrong", []string{"Authorization: Bearer a", "Authorization: Bearer b"}, 401},
		{"good one after many", []string{"Authorization: Bearer 1", "Authorization: Bearer 2", "Authorization: Bearer 3", "Authorization: Bearer 4", "Authorization: " + good}, 401},
		{"X-Service-Token repeated, one of them good", []string{"X-Service-Token: wrong", "X-Service-Token: " + hookstest.Token}, 200},
		{"both headers and both good", []string{"X-Service-Token: " + hookstest.Token, "Authorization: " + good}, 200},
		{"both headers and both wrong", []string{"X-Service-Token: a", "Authorization: Bearer b"}, 401},
		{"half a token in each", []string{"X-Service-Token: " + hookstest.Token[:4], "Authorization: Bearer " + hookstest.Token[4:]}, 401},
		{"list in one line", []string{"Authorization: Bearer wrong, " + good}, 401},
		{"name in lower case", []string{"authorization: " + good}, 200},
		{"spaces around it", []string{"X-Service-Token:   " + hookstest.Token + "  "}, 200},
		{"quotes around it", []string{`X-Service-Token: "` + hookstest.Token + `"`}, 401},
		{"underscores in the name", []string{"X_Service_Token: " + hookstest.Token}, 401},
		{"token in a cookie", []string{"Cookie: X-Service-Token=" + hookstest.Token}, 401},
		{"very long token", []string{"X-Service-Token: " + strings.Repeat("x", 10_000)}, 401},
		{"bytes that are no text", []string{"X-Service-Token: \x80\xff"}, 401},
		{"token in a trailer", []string{"Trailer: X-Service-Token"}, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dial(t, s)
			lines := append([]string{"POST /api/hooks/wake HTTP/1.1", "Host: 127.0.0.1", fmt.Sprintf("X-Forwarded-For: 192.0.2.%d", i+1), "Transfer-Encoding: chunked"}, c.lines...)
			_, _ = io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\n\r\nc\r\n{\"text\":\"a\"}\r\n0\r\nX-Service-Token: "+hookstest.Token+"\r\n\r\n")
			resp := readAnswer(t, conn)
			if c.status == 200 {
				if resp.Status != 200 {
					t.Errorf("got %d %s", resp.Status, resp.Body)
				}
				rn.Next()
				return
			}
			resp.WantError(t, c.status, "X-Service-Token")
			rn.WantNoTurn(s)
		})
	}
	t.Run("token in the query", func(t *testing.T) {
		s.Request("POST", "/api/hooks/wake?token="+hookstest.Token+"&access_token="+hookstest.Token, `{"text":"a"}`, "X-Forwarded-For", "198.51.100.1").WantError(t, 401)
	})
	t.Run("token in the body", func(t *testing.T) {
		s.Request("POST", "/api/hooks/wake", `{"text":"a","token":"`+hookstest.Token+`"}`, "X-Forwarded-For", "198.51.100.2").WantError(t, 401)
	})
	rn.WantNoTurn(s)
}

func TestForwardedAddressOfAStrangerIsNotBelieved(t *testing.T) {
	s := hookstest.StartSite(t, "hooks {\n enabled\n runner echo\n token "+hookstest.Token+"\n}") // that trusts no proxy
	for i := range 20 {
		s.Request("POST", "/api/hooks/wake", `{}`, "X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i)).WantError(t, 401)
	}
	s.Request("POST", "/api/hooks/wake", `{}`, "X-Forwarded-For", "192.0.2.99").WantError(t, 429)
}

func TestManyMembersAndLongStrings(t *testing.T) {
	rn := hookstest.StartRunner(t, nil)
	s := hostileSite(t, rn)
	var b strings.Builder
	b.WriteString(`{"text":"a"`)
	for i := range 20_000 {
		fmt.Fprintf(&b, `,"key-%d":%d`, i, i)
	}
	unique := b.String() + `}`
	if resp := s.Post("/api/hooks/wake", unique); resp.Status != 200 {
		t.Errorf("20,000 members: got %d %s", resp.Status, resp.Body)
	}
	rn.Next()
	s.Post("/api/hooks/wake", b.String()+`,"key-7":1}`).WantError(t, 400, "twice")

	text := strings.Repeat("\u200b\u202e[", 100_000)
	if resp := s.Post("/api/hooks/wake", hookstest.AsJSON(t, map[string]string{"text": text})); resp.Status != 200 {
		t.Errorf("a text of invisible characters: got %d %s", resp.Status, resp.Body)
	}
	if got := rn.Next().WakeText(t); strings.ContainsAny(got, "\u200b\u202e") {
		t.Error("invisible characters are still there")
	}
}

// A sender that stops in the middle, or gives a byte now and then, is answered and let go, and its connection closed.
func TestBodiesThatTakeTooLongAreGivenUp(t *testing.T) {
	restore := caddyhooks.ShortenBodyTime(200 * time.Millisecond)
	s := hookstest.StartSite(t, "hooks {\n\tenabled\n\trunner echo\n\ttoken "+hookstest.Token+"\n\thook signed {\n\t\tauth hmac X-Sig s3cret\n\t}\n}")
	t.Cleanup(restore)
	for _, tc := range []struct {
		name, path, header, body string
		every                    time.Duration
	}{
		{"nothing comes, from nobody in particular", "/api/hooks/signed", "", "", 0},
		{"nothing more comes", "/api/hooks/agent", "Authorization: Bearer " + hookstest.Token + "\r\n", "{", 0},
		{"little comes", "/api/hooks/agent", "Authorization: Bearer " + hookstest.Token + "\r\n", "{", 20 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", "127.0.0.1:"+s.Port)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%s\r\n%sContent-Length: 1000\r\n\r\n%s", tc.path, s.Port, tc.header, tc.body)
			if tc.every > 0 {
				ticker := time.NewTicker(tc.every)
				defer ticker.Stop()
				go func() {
					for range ticker.C {
						if _, err := conn.Write([]byte(" ")); err != nil {
							return
						}
					}
				}()
			}
			answer, _ := io.ReadAll(conn) // until the server closes the connection
			if !strings.HasPrefix(string(answer), "HTTP/1.1 408 ") || !strings.Contains(string(answer), `"status":"error"`) {
				t.Errorf("got %q", answer)
			}
		})
	}
	// A body in time is none the worse for it.
	if got := s.Post("/api/hooks/agent", `{"message":"x","syncResponse":true}`); got.Status != 200 {
		t.Errorf("got %+v", got)
	}
}

// The answer does not wait for the body for long. Caddy ends the connection after a minute if that was announced as small.
func TestTooLargeBodyThatHardlyComesIsRefused(t *testing.T) {
	restore := caddyhooks.ShortenBodyTime(200 * time.Millisecond)
	s := hookstest.StartSite(t, "hooks {\n\tenabled\n\trunner echo\n\ttoken "+hookstest.Token+"\n\thook small {\n\t\taction agent\n\t}\n}")
	t.Cleanup(restore)
	const announcedSmall = "Content-Length: 65537"
	for _, length := range []string{announcedSmall, "Content-Length: 9999999", "Transfer-Encoding: chunked\r\n\r\n10001\r\n" + strings.Repeat("a", 64<<10)} {
		for _, isSlow := range []bool{false, true} {
			conn := dial(t, s)
			_, _ = fmt.Fprintf(conn, "POST /api/hooks/small HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n", hookstest.Token, length)
			if isSlow {
				go func() {
					for range time.Tick(20 * time.Millisecond) {
						if _, err := io.WriteString(conn, "a"); err != nil {
							return
						}
					}
				}()
			}
			answer := bufio.NewReader(conn)
			resp, err := http.ReadResponse(answer, nil)
			if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
				t.Fatalf("%.25s, slow %t: got %+v, %v", length, isSlow, resp, err)
			}
			resp.Body.Close()
			if length == announcedSmall {
				continue
			}
			if _, err := io.Copy(io.Discard, answer); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%.25s, slow %t: the connection stays open", length, isSlow)
			}
		}
	}
}

// A client that reads nothing before it has sent everything gets the answer all the same.
func TestTooLargeBodyIsHeardOut(t *testing.T) {
	s := hookstest.NewServer(t)
	s.Load(hookstest.Hooks(hookstest.StartRunner(t, nil), ""))
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body := `{"message":"` + strings.Repeat("a", 4<<20) + `"}`
	if _, err := fmt.Fprintf(conn, "POST /api/hooks/agent HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
		strings.TrimPrefix(s.URL, "http://"), hookstest.Token, len(body), body); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("got %d", resp.StatusCode)
	}
}
