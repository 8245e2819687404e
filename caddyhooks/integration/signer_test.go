package integration

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/integration/internal/npmtest"
	"github.com/caddy-hooks/caddy-hooks/caddyhooks/internal/hookstest"
)

// signer signs requests with the libraries of the senders, in a process of Node.js. sign.mjs says how.
type signer struct {
	mu     sync.Mutex
	asked  io.WriteCloser
	answer *bufio.Scanner
}

var signerPackages = npmtest.Packages("testdata/signers")

func startSigner(t *testing.T) *signer {
	t.Helper()
	dir := signerPackages(t)
	text, err := os.ReadFile("testdata/signers/sign.mjs")
	if err != nil {
		t.Fatal(err)
	}
	// Node looks for packages beside the script. Other checkouts have other scripts.
	script := filepath.Join(dir, fmt.Sprintf("sign-%x.mjs", sha256.Sum256(text)))
	if _, err := os.Stat(script); err != nil {
		if err := writeAtOnce(script, text); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("node", script)
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close() // ends the process
		_ = cmd.Wait()
	})
	answer := bufio.NewScanner(out)
	answer.Buffer(nil, 1<<20)
	s := &signer{asked: in, answer: answer}
	s.sign(t, question{Sender: "token"}) // it answers when its libraries are loaded, and no event grows old until then
	return s
}

// writeAtOnce writes a file that other processes may be reading.
func writeAtOnce(path string, data []byte) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+"-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // unless it was renamed
	_, err = file.Write(data)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return os.Rename(file.Name(), path)
}

// signedRequest is what a sender sends.
type signedRequest struct {
	url, body string
	headers   []string // pairs of name and value
	vouched   string   // the library that signed it, or took the signature for genuine; "" if the sender has none
	answer    string   // the answer that the library gives to it, if it is one with which the sender tries a hook out
}

// question is what a signer is asked for.
type question struct {
	Sender string `json:"sender"`
	Secret string `json:"secret"`
	URL    string `json:"url"`
	Body   string `json:"body"`
	Time   int64  `json:"time"` // of the signature, if it has one
	ID     string `json:"id"`   // of the request, if it has one outside of the body
}

func (s *signer) sign(t testing.TB, q question) signedRequest {
	t.Helper()
	line, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.asked.Write(append(line, '\n')); err != nil {
		t.Fatal(err)
	}
	if !s.answer.Scan() {
		t.Fatalf("the signer ended: %v", s.answer.Err())
	}
	var signed struct {
		URL, Body, Vouched, Answer, Error string
		Headers                           map[string]string
	}
	if err := json.Unmarshal(s.answer.Bytes(), &signed); err != nil || signed.Error != "" {
		t.Fatalf("signing: %v %s", err, signed.Error)
	}
	request := signedRequest{url: signed.URL, body: signed.Body, vouched: signed.Vouched, answer: signed.Answer}
	for name, value := range signed.Headers {
		request.headers = append(request.headers, name, value)
	}
	return request
}

// send sends the request, with more headers.
func (r signedRequest) send(headers ...string) (hookstest.Response, error) {
	return hookstest.TryRequest("POST", r.url, r.body, append(headers, r.headers...)...)
}
