package main

import (
	"reflect"

	"github.com/alecthomas/kong"

	"treadle/loop"
)

// decodeSize reads the number of bytes of a flag with the type size, written as 1048576, 1024k, 1m or 1MiB.
func decodeSize(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("value", &text); err != nil {
		return err
	}
	n, err := loop.ParseSize(text)
	target.SetInt(n)
	return err
}
