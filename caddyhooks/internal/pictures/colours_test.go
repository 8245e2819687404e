package main

import (
	"image"
	"image/color"
	"testing"
)

// A small thing, such as a green dot, keeps its colour among many that are there more often.
func TestRareColoursAreKept(t *testing.T) {
	t.Parallel()
	picture := image.NewRGBA(image.Rect(0, 0, 600, 100))
	for x := range 600 {
		for y := range 100 {
			grey := uint8((x + y) % 256)
			picture.SetRGBA(x, y, color.RGBA{grey, grey, uint8(min(255, int(grey)+x%3)), 255})
		}
	}
	green := color.RGBA{20, 140, 60, 255}
	picture.SetRGBA(300, 50, green)
	few := fewColours(picture)
	if got := color.RGBAModel.Convert(few.At(300, 50)); got != green {
		t.Errorf("the dot is %v, want %v", got, green)
	}
	if n := len(few.ColorModel().(color.Palette)); n > 256 {
		t.Errorf("there are %d colours", n)
	}
}
