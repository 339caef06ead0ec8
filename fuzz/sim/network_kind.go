//go:build invariants

package sim

import (
	"treadle/codec/periodic"
)

// peerKind is a protocol, its framing and a role in it. A peer of the CRC framing is client and worker in one.
type peerKind int

const (
	plainClient peerKind = iota
	plainWorker
	crcClient
	crcWorker
	gloomMaster
	gloomSlave
	beanstalkPeer
	faktoryPeer
	peerKinds
	httpWorker // without a connection
)

func (k peerKind) String() string {
	return []string{
		"plain client", "plain worker", "CRC client", "CRC worker", "Gloom master", "Gloom slave", "peer of beanstalkd's protocol",
		"peer of Faktory's protocol", "", "HTTP worker",
	}[k]
}

// port is the listener that a peer connects to.
func (k peerKind) port() string {
	return []string{"periodic", "periodic", "periodic", "periodic", "gloom-masters", "gloom-slaves", "beanstalk", "faktory"}[k]
}

// hello is what a connection begins with.
func (k peerKind) hello() []byte {
	role := periodic.Client
	if k == plainWorker || k == crcWorker {
		role = periodic.Worker
	}
	if k.gloom() || k.inLines() {
		return nil
	}
	return periodic.AppendHello(nil, &periodic.Hello{Framing: k.framing(), Role: role})
}

func (k peerKind) framing() periodic.Framing {
	if k == crcClient || k == crcWorker {
		return periodic.CRC
	}
	return periodic.Plain
}

func (k peerKind) gloom() bool   { return k == gloomMaster || k == gloomSlave }
func (k peerKind) inLines() bool { return k == beanstalkPeer || k == faktoryPeer }
func (k peerKind) client() bool  { return k != plainWorker && !k.gloom() && !k.inLines() }
func (k peerKind) worker() bool  { return k != plainClient && !k.gloom() }
