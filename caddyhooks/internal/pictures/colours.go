package main

import (
	"cmp"
	"image"
	"image/color"
	"maps"
	"slices"
)

// fewColours is a picture with the 256 colours that it has most of; others become the nearest of these. A page has few colours,
// and many between them at the edges of letters.
func fewColours(picture image.Image) image.Image {
	bounds := picture.Bounds()
	counts := make(map[color.RGBA]int)
	at := func(x, y int) color.RGBA { return color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA) }
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			counts[at(x, y)]++
		}
	}
	commonest := slices.SortedFunc(maps.Keys(counts), func(a, b color.RGBA) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var palette color.Palette
	for _, c := range commonest[:min(len(commonest), 256)] {
		palette = append(palette, c)
	}
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
