package strictjson

import (
	"encoding/json"
	"math"
	"strings"
)

// ValueAt follows a path of members, as in a.b, and returns nil if there is no such value.
func ValueAt(doc any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		object, _ := doc.(map[string]any)
		doc = object[name]
	}
	return doc
}

// TextAt is the text or the number at the first of some paths that has one, "" if none has.
func TextAt(doc any, paths ...string) string {
	for _, path := range paths {
		text := ""
		switch value := ValueAt(doc, path).(type) {
		case string:
			text = value
		case json.Number:
			text = value.String()
		}
		if text != "" {
			return text
		}
	}
	return ""
}

// Paths selects the values at paths of members, where * stands for every item of an array. Of an object or array at such a path it
// selects nothing more.
func (s *Selection) Paths(paths ...string) *Selection {
	for _, path := range paths {
		at := s
		for name := range strings.SplitSeq(path, ".") {
			if name == "*" {
				at = at.Item(math.MaxInt - 1)
			} else {
				at = at.Member(name)
			}
		}
	}
	return s
}
