package auth

import (
	"crypto/rand"
	"encoding/hex"
	"maps"
	"net/http"
	"strings"
)

// Part is a piece of what is signed.
type Part struct {
	literal string
	header  string
	without string // what the value of the header must not hold
	kind    partKind
	decoded *strings.Replacer // what is signed instead of some characters of the URL
	source  PartSource
}

type partKind int

const (
	literalPart partKind = iota
	bodyPart
	timePart
	headerPart
	sourcePart
	urlPart
)

// Body is the body as it was received, and Time the timestamp as it was sent.
var (
	Body = Part{kind: bodyPart}
	Time = Part{kind: timePart}
)

// Literal is a text.
func Literal(text string) Part { return Part{literal: text} }

// HeaderWithout is the value of a header, which must be sent once. Its name is in canonical form. The value must not hold the
// separator that follows it: otherwise one signature would be good for several requests, which end the value at different places.
func HeaderWithout(separator, name string) Part {
	return Part{kind: headerPart, header: name, without: separator}
}

// PartSource appends what is signed. It gets the timestamp as it was sent. It returns the name of a header or parameter that is missing.
type PartSource func(dst []byte, req *Request, timestamp string) (_ []byte, missing string)

// SourceOf is what a function appends.
func SourceOf(source PartSource) Part { return Part{kind: sourcePart, source: source} }

// URL is the whole URL that was called, with some of its characters replaced, as the sender does. Nil: as it is.
func URL(decoded *strings.Replacer) Part {
	if decoded == nil {
		decoded = strings.NewReplacer()
	}
	return Part{kind: urlPart, decoded: decoded}
}

func (p *Part) isBody() bool { return p.kind == bodyPart }

// appendParts appends what is signed. The verdict refuses a request that lacks some of it.
func appendParts(dst []byte, parts []Part, req *Request, timestamp string) ([]byte, Verdict) {
	for i := range parts {
		switch part := &parts[i]; part.kind {
		case literalPart:
			dst = append(dst, part.literal...)
		case bodyPart:
			dst = append(dst, req.Body...)
		case timePart:
			dst = append(dst, timestamp...)
		case headerPart:
			values := req.Header[part.header]
			if len(values) != 1 || values[0] == "" {
				return dst, RefuseMissing(SignedMissing(part.header))
			}
			if strings.Contains(values[0], part.without) {
				return dst, Refuse(SignedAmbiguous(part.header, part.without))
			}
			dst = append(dst, values[0]...)
		case urlPart:
			called := req.calledURL()
			if called == "" {
				return dst, Refuse(URLUnknown)
			}
			dst = append(dst, part.decoded.Replace(called)...)
		case sourcePart:
			var absent string
			if dst, absent = part.source(dst, req, timestamp); absent != "" {
				return dst, RefuseMissing(SignedMissing(absent))
			}
		}
	}
	return dst, Accept()
}

// completed returns the request with the headers that are signed and that it lacks, and these headers. The timestamp is one of
// them if it is in a header of its own.
func completed(req *Request, parts []Part, at Timestamp, timestamp string) (*Request, []Header) {
	complete := *req
	complete.Header = maps.Clone(req.Header)
	if complete.Header == nil {
		complete.Header = make(http.Header)
	}
	var headers []Header
	set := func(name, value string) {
		complete.Header[name] = []string{value}
		headers = append(headers, Header{name, value})
	}
	if at.Header != "" {
		set(at.Header, timestamp)
	}
	for _, part := range parts {
		switch part.kind {
		case headerPart:
			if len(complete.Header[part.header]) == 0 {
				set(part.header, "msg_"+randomText())
			}
		case sourcePart:
			for range maxSources {
				_, missing := part.source(nil, &complete, timestamp)
				if missing == "" || len(complete.Header[missing]) > 0 {
					break
				}
				set(missing, randomText())
			}
		}
	}
	return &complete, headers
}

// maxSources bounds the headers that are made up for a signature.
const maxSources = 16

func randomText() string {
	var random [12]byte
	_, _ = rand.Read(random[:])
	return hex.EncodeToString(random[:])
}
