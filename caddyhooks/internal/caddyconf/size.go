package caddyconf

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"

	"github.com/dustin/go-humanize"
)

// Size is a number of bytes. In JSON and in a Caddyfile it can be written as in "64KB", which is 65536.
type Size int64

// UnmarshalJSON reads a number of bytes, or a string with a unit.
func (s *Size) UnmarshalJSON(data []byte) error {
	text := string(data)
	if len(data) > 0 && data[0] == '"' {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	size, err := ParseSize(text)
	*s = size
	return err
}

var sizeText = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)\s*([KMGkmg]?)[Ii]?[Bb]?$`)

// ParseSize reads a number of bytes with or without a unit. A KB has 1024 bytes, and a GB is the largest unit.
func ParseSize(text string) (Size, error) {
	parts := sizeText.FindStringSubmatch(strings.TrimSpace(text))
	if parts == nil {
		return 0, errors.New("a size must be a number of bytes or a text such as 64KB")
	}
	unit := parts[2]
	if unit != "" {
		unit += "iB"
	}
	n, err := humanize.ParseBytes(parts[1] + unit)
	if err != nil || n > 1<<50 {
		return 0, errors.New("a size must be a number of bytes or a text such as 64KB")
	}
	return Size(n), nil
}
