package main

import (
	"cmp"
	"image"
	"image/color"
	"maps"
	"math"
	"slices"
)

// fewColours is a picture with at most 256 colours, which makes a small file. A page has few colours, and many between them at the
// edges of letters.
func fewColours(picture image.Image) image.Image {
	bounds := picture.Bounds()
	counts := make(map[color.RGBA]int)
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA) }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[at(x, y)]++
		}
	}
	palette := paletteOf(counts)
	nearest := make(map[color.RGBA]uint8, len(counts))
	for c := range counts {
		nearest[c] = uint8(palette.Index(c))
	}
	few := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			few.SetColorIndex(x, y, nearest[at(x, y)])
		}
	}
	return few
}

// paletteOf takes one colour after the other, always the one that would be missed most: there is much of it, or nothing like it
// has been taken yet.
func paletteOf(counts map[color.RGBA]int) (palette color.Palette) {
	all := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int { // in the same order every time
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	missed := make([]int, len(all))
	for i := range missed {
		missed[i] = math.MaxInt
	}
	next := 0 // the most common one
	for len(palette) < min(len(all), 256) {
		taken := all[next]
		palette = append(palette, taken)
		for i, c := range all {
			missed[i] = min(missed[i], counts[c]*distance(c, taken))
			if missed[i] > missed[next] {
				next = i
			}
		}
	}
	return palette
}

// distance is how far two colours are apart, squared.
func distance(a, b color.RGBA) int {
	square := func(x, y uint8) int { return (int(x) - int(y)) * (int(x) - int(y)) }
	return square(a.R, b.R) + square(a.G, b.G) + square(a.B, b.B)
}
