package storefile

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func FuzzManifest(f *testing.F) {
	m := Manifest{Format: 1, Bytes: 5, SHA256: make([]byte, 32)}
	f.Add(append([]byte("pages"), m.Encode()...))
	f.Add([]byte(nil))
	f.Add([]byte(ManifestMagic))
	f.Add(append(make([]byte, 8), ManifestMagic...))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff" + ManifestMagic))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ReadManifest(bytes.NewReader(data), int64(len(data)))
		if errors.Is(err, io.EOF) || err == nil && m != nil && (m.Bytes < 0 || m.Bytes > int64(len(data)) || len(m.SHA256) != 32) {
			t.Errorf("got %+v, %v", m, err)
		}
	})
}
