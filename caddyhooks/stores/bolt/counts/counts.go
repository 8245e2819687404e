// Package counts has how many deliveries of a bolt file were given up. It is a part of the store bolt, and imports no other package of the
// project.
package counts

import (
	"encoding/binary"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// ByChannel are how many deliveries were given up, by channel. Those of callbacks are under "". None of them is 0.
type ByChannel map[string]int

func (c ByChannel) Add(channel string, n int) {
	if c[channel] += n; c[channel] == 0 {
		delete(c, channel)
	}
}

func (c ByChannel) Sum() (sum int) {
	for _, n := range c {
		sum += n
	}
	return max(sum, 0)
}

func (c ByChannel) Encode() []byte {
	data := binary.AppendUvarint(nil, uint64(c.Sum()))
	for _, channel := range slices.Sorted(maps.Keys(c)) {
		data = protowire.AppendString(data, channel)
		data = binary.AppendUvarint(data, uint64(max(c[channel], 0)))
	}
	return data
}

// Decode reports false if the counts by channel are missing or make no sense.
func Decode(data []byte) (counts ByChannel, ok bool) {
	sum, n := binary.Uvarint(data)
	if n <= 0 {
		return nil, false
	}
	counts = make(ByChannel)
	for data = data[n:]; len(data) > 0; data = data[n:] {
		var channel string
		if channel, n = protowire.ConsumeString(data); n < 0 {
			return nil, false
		}
		data = data[n:]
		var count uint64
		if count, n = binary.Uvarint(data); n <= 0 || count > sum {
			return nil, false
		}
		counts.Add(channel, int(count))
	}
	return counts, uint64(counts.Sum()) == sum
}
