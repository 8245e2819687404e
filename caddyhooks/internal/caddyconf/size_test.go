package caddyconf

import "testing"

func TestSizesAreReadAsOperatorsMeanThem(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{
		"64KB": 65536, "64kb": 65536, "64 KB": 65536, "64K": 65536, "64KiB": 65536, "65536": 65536, "1MB": 1 << 20, "1.5MB": 3 << 19, "1GB": 1 << 30, "10B": 10,
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%s is %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "KB", "-1", "1TB", "1e3", "0x10", "99999999999GB", "1,000"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}
