package cluster

import (
	"fmt"
	"log/slog"
)

// raftLog passes Raft's messages on. Node logs changes of the role itself, so all but warnings are for debugging.
type raftLog struct{ log *slog.Logger }

func (l raftLog) Debug(v ...any)                   { l.log.Debug(fmt.Sprint(v...)) }
func (l raftLog) Debugf(format string, v ...any)   { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l raftLog) Info(v ...any)                    { l.log.Debug(fmt.Sprint(v...)) }
func (l raftLog) Infof(format string, v ...any)    { l.log.Debug(fmt.Sprintf(format, v...)) }
func (l raftLog) Warning(v ...any)                 { l.log.Warn(fmt.Sprint(v...)) }
func (l raftLog) Warningf(format string, v ...any) { l.log.Warn(fmt.Sprintf(format, v...)) }
func (l raftLog) Error(v ...any)                   { l.log.Error(fmt.Sprint(v...)) }
func (l raftLog) Errorf(format string, v ...any)   { l.log.Error(fmt.Sprintf(format, v...)) }

// Fatal and Panic report a state that Raft cannot go on from. The process ends before it says anything wrong.
func (l raftLog) Fatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLog) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (l raftLog) Panic(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l raftLog) Panicf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
