package engine

import (
	"bytes"
	"encoding/json"
)

// ErrorBody is the JSON body of every error that the service reports, in an answer or in a callback.
func ErrorBody(message string) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	// Strings always encode.
	_ = enc.Encode(struct {
		Status       string `json:"status"`
		ErrorMessage string `json:"errorMessage"`
	}{"error", message})
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}
