package main

import "embed"

// packaged are the files that treadle print writes.
//
//go:embed package
var packaged embed.FS

// printCmd prints files for other programs.
type printCmd struct {
	Alerts  printAlertsCmd  `cmd:"" help:"Print the alerts for Prometheus."`
	Grafana printGrafanaCmd `cmd:"" help:"Print the board for Grafana."`
	Man     printManCmd     `cmd:"" help:"Print the manual page."`
}

// Help is printed by treadle print --help.
func (printCmd) Help() string {
	return `The files fit the metrics of this version. The alerts expect the job "treadle" in Prometheus' scrape_configs. The board asks for its data source.

	treadle print alerts > treadle-alerts.yml
	treadle print grafana > treadle-board.json`
}

type printAlertsCmd struct{}

// Run prints the alerts.
func (*printAlertsCmd) Run(con *console) error { return printPackaged(con, "alerts.yml") }

type printGrafanaCmd struct{}

// Run prints the board.
func (*printGrafanaCmd) Run(con *console) error { return printPackaged(con, "grafana.json") }

func printPackaged(con *console, name string) error {
	text, err := packaged.ReadFile("package/" + name)
	if err != nil {
		return err
	}
	_, err = con.out.Write(text)
	return err
}
