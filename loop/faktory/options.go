package faktory

import (
	"bytes"
	"fmt"
	"os"

	"treadle/loop/protocol"
)

// Options are the settings of the protocol, as of package setting. The zero value of a field means its default.
type Options struct {
	// Listen lists addresses as of protocol.CheckAddresses.
	Listen       []string `name:"faktory" sep:"none" placeholder:"ADDR" help:"Address of the Faktory protocol, tcp://host:port or unix:///path, or off; repeatable (default: off)."`
	PasswordFile string   `name:"faktory-password-file" placeholder:"FILE" help:"File with the password that clients of the Faktory protocol must know (default: none)."`
}

const settingPassword = "faktory-password-file"

// DefaultPort is the port that clients of the protocol connect to by default.
const DefaultPort = "7419"

// Check returns a protocol.OptionError when an address cannot work.
func (o *Options) Check() error {
	return protocol.CheckAddresses(name, &o.Listen, protocol.SplitAddress)
}

// maxPassword bounds the bytes of a password file, so that a wrong file is noticed.
const maxPassword = 4096

// password reads the password, empty when there is no file.
func (o *Options) password() (string, error) {
	if o.PasswordFile == "" {
		return "", nil
	}
	text, err := os.ReadFile(o.PasswordFile)
	if err == nil {
		if text = bytes.TrimSpace(text); len(text) == 0 || len(text) > maxPassword {
			err = fmt.Errorf("%s has no password of 1 to %d bytes", o.PasswordFile, maxPassword)
		}
	}
	if err != nil {
		return "", &protocol.OptionError{Setting: settingPassword, Err: err}
	}
	return string(text), nil
}
