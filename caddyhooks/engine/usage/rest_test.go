package usage_test

import (
	"testing"

	"github.com/caddy-hooks/caddy-hooks/caddyhooks/engine/usage"
)

func TestTokensThatAreLeft(t *testing.T) {
	for _, tt := range []struct {
		total any
		parts []any
		want  string
	}{
		{nil, []any{1}, "null"},
		{10, nil, "10"},
		{10, []any{nil}, "10"},
		{10, []any{3, nil, 7}, "0"},
		{10, []any{3, 8}, "null"},
		{10, []any{-3}, "null"},
		{10, []any{"3"}, "null"},
		{-1, []any{3}, "-1"},
		{"x", nil, `"x"`},
	} {
		var parts []usage.Number
		for _, part := range tt.parts {
			parts = append(parts, usage.NumberOf(part))
		}
		if got, err := usage.Rest(usage.NumberOf(tt.total), parts...).MarshalJSON(); err != nil || string(got) != tt.want {
			t.Errorf("%v without %v are %s, %v", tt.total, tt.parts, got, err)
		}
	}
}
