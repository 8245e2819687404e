package intake

import (
	"encoding/json"
	"net/http"
)

// WithContentType sets the content type of a payload, if there is none yet.
func WithContentType(header http.Header, payload []byte) {
	if header.Get("Content-Type") != "" {
		return
	}
	contentType := "application/json"
	if !json.Valid(payload) && beginsAsForm.Match(payload) {
		contentType = formType
	}
	header.Set("Content-Type", contentType)
}
