package main

import (
	"fmt"
	"io"
	"os"

	"github.com/pelletier/go-toml/v2/unstable"

	"treadle/loop/setting"
)

// Bounds of a configuration file.
const (
	// maxConfigFile is the size of a file with as many cron entries as there may be, and some 1.5 KiB for each.
	maxConfigFile = 16 << 20
	// maxConfigKeys bounds the keys and tables, without those of earlier cron entries: the decoder compares each with
	// all that it has seen. So many take a second.
	maxConfigKeys = 50_000
)

// readConfigFile reads a configuration file.
func readConfigFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	if err == nil && len(text) > maxConfigFile {
		err = fmt.Errorf("it is larger than %s", setting.Bytes(maxConfigFile))
	}
	return text, err
}

// checkKeys returns an error, and its line, when a TOML text has more keys than are decoded.
func checkKeys(text []byte) (line int, err error) {
	keys, ofEntry, inEntry := 0, 0, false
	for k := range keysOf(text) {
		switch k.kind {
		case unstable.ArrayTable:
			inEntry, ofEntry = len(k.path) == 1 && k.path[0] == cronTable, 0
		case unstable.Table:
			inEntry = false
		}
		if inEntry {
			ofEntry += k.keys
		} else {
			keys += k.keys
		}
		if keys+ofEntry > maxConfigKeys {
			return k.line, fmt.Errorf("there are more than %d keys and tables", maxConfigKeys)
		}
	}
	return 0, nil
}

// keysIn counts the keys in a value.
func keysIn(n *unstable.Node) (keys int) {
	switch n.Kind {
	case unstable.KeyValue:
		return 1 + keysIn(n.Value())
	case unstable.Array, unstable.InlineTable:
		for c := n.Children(); c.Next(); {
			keys += keysIn(c.Node())
		}
	}
	return keys
}
