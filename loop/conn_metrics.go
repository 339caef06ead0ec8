package loop

import (
	"sync/atomic"

	"treadle/loop/protocol"
	"treadle/loop/web"
)

// connected returns the connections of each protocol that is served.
func (s *connShares) connected() (all []protocol.Connected) {
	for p, share := range s.protocols {
		if !share.mayListen {
			continue
		}
		c := protocol.Connected{Protocol: share.name}
		none := s.open(protocolID(p))
		for role := protocol.RoleClient; role < protocol.Roles; role++ {
			c.Open[role] = int(share.roles[role].Load())
			none -= c.Open[role]
		}
		c.Open[protocol.RoleNone] = max(none, 0)
		all = append(all, c)
	}
	return all
}

// samples returns the rows of the metrics.
func (s *connShares) samples() (all []web.Sample) {
	for _, c := range s.connected() {
		for _, role := range []protocol.Role{protocol.RoleClient, protocol.RoleWorker, protocol.RoleNone} {
			all = append(all, connections(c.Protocol, role, c.Open[role]))
		}
	}
	for _, share := range s.protocols {
		if !share.mayListen {
			continue
		}
		for _, row := range []web.Sample{
			web.Counter("treadle_connections_opened_total", "Connections accepted.", share.opened.Load()),
			web.Counter("treadle_connections_refused_total", "Connections turned away at --max-connections, or because the rest of it is set aside for other protocols, and those refused at --max-api-connections.", share.refused.Load()),
			web.Counter("treadle_connections_silent_total",
				"Connections closed without a handshake, or without a byte, within --handshake-timeout.", share.silent.Load()),
			byteCount(&share.read).With("direction", "in"),
			byteCount(&share.written).With("direction", "out"),
		} {
			all = append(all, row.With("protocol", share.name))
		}
		if share.loopServed {
			all = append(all, web.Counter("treadle_frames_total",
				"Requests read from connections, in the protocols that the event loops serve.", share.frames.Load()).With("protocol", share.name))
		}
	}
	for _, share := range s.protocols {
		for why := protocol.ReasonDisk; why < protocol.Reasons; why++ {
			all = append(all, web.Counter("treadle_jobs_refused_total", "Jobs and other requests refused at a limit, by a setting or for want of disk.",
				share.refusals[why].Load()).With("protocol", share.name).With("reason", why.String()))
		}
	}
	return append(all, web.Gauge("treadle_connections_limit", "The setting --max-connections.", s.limit))
}

func connections(name string, role protocol.Role, n int) web.Sample {
	return web.Gauge("treadle_connections", "Open connections; the role is none before the handshake, and in protocols without roles.",
		n).With("protocol", name).With("role", role.String())
}

func byteCount(n *atomic.Uint64) web.Sample {
	return web.Counter("treadle_bytes_total", "Bytes read from connections and written to them.", n.Load())
}

// closedSamples returns a sample for each protocol and label. Some errors share a label.
func (s *connShares) closedSamples(closed []*closeCounter) (all []web.Sample) {
	for p, share := range s.protocols {
		if !share.mayListen {
			continue
		}
		at := make(map[string]int)
		for _, c := range closed {
			n := c.n[p].Load()
			if !share.loopServed && n == 0 {
				continue
			}
			k, ok := at[c.Label]
			if !ok {
				k = len(all)
				at[c.Label] = k
				all = append(all, web.Counter("treadle_connections_closed_total", "Connections closed: by the peer, or by the server for a reason; the reason is other in protocols with sockets of their own.", 0).
					With("protocol", share.name).With("reason", c.Label))
			}
			all[k].Value += float64(n)
		}
	}
	return all
}
