package counts

import (
	"encoding/binary"
	"maps"
	"testing"
)

func FuzzDecode(f *testing.F) {
	f.Add(ByChannel{}.Encode())
	f.Add(ByChannel{"": 1, "team": 300}.Encode())
	f.Add(binary.AppendUvarint(nil, 7))
	f.Fuzz(func(t *testing.T, data []byte) {
		counts, ok := Decode(data)
		if !ok {
			return
		}
		again, ok := Decode(counts.Encode())
		if !ok || !maps.Equal(again, counts) {
			t.Errorf("%v is encoded as %v", counts, again)
		}
	})
}
