package ingress

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
)

// answerPage is where a link leads a person who is to answer a question. It is the same for all questions, and decides nothing by itself.
//
//go:embed answer.html
var answerPage []byte

// answerPolicy lets the page run its own script and style, and nothing else.
var answerPolicy = "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src " +
	hashOf("script") + "; style-src " + hashOf("style")

// hashOf is how the policy names what stands in an element of the page.
func hashOf(element string) string {
	_, from, _ := bytes.Cut(answerPage, []byte("<"+element+">"))
	inside, _, _ := bytes.Cut(from, []byte("</"+element+">"))
	digest := sha256.Sum256(inside)
	return "'sha256-" + base64.StdEncoding.EncodeToString(digest[:]) + "'"
}

func writeAnswerPage(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", answerPolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	writeBody(w, http.StatusOK, "text/html; charset=utf-8", answerPage)
}
