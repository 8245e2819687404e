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

func TestCostThatIsLeft(t *testing.T) {
	for _, tt := range []struct {
		total, before any
		want          string
	}{
		{nil, 0, "null"},
		{0.5, nil, "null"},
		{0.5, 0, "0.5"},
		{0.75, 0.25, "0.5"},
		{0.5, 0.75, "null"},
		{0.5, "x", "null"},
		{"x", 0, `"x"`},
		{-1, -2, "1"},
		{-1, 0, "null"},
	} {
		if got, err := usage.RestOfCost(usage.NumberOf(tt.total), usage.NumberOf(tt.before)).MarshalJSON(); err != nil || string(got) != tt.want {
			t.Errorf("%v without %v is %s, %v", tt.total, tt.before, got, err)
		}
	}
}
