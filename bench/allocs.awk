# Reads benchstat's CSV of the allocations in two runs of Go's benchmarks, the baseline first, and fails when the median of a
# benchmark has grown. It ignores times, which depend on the machine. A record is name, baseline, its interval, now, its
# interval, change and its significance; records like "pkg: name" stand between the tables.
BEGIN { FS = "," }
/^pkg: / { pkg = substr($0, 6) }
NF < 7 || $1 == "" || $1 == "geomean" || $2 == "" || $4 == "" { next }
($2 $4) !~ /^[0-9.e+]+$/ { print "cannot read benchstat's table: " $0; failed = 1; exit }
{ compared++ }
$4 + 0 > $2 + 0 { grown = grown "\n" pkg " " $1 ": " $4 ", was " $2 }
END {
	if (!failed && !compared) print "no benchmark is in both runs"
	if (grown) print "more allocations than in the baseline:" grown
	if (failed || !compared || grown) exit 1
	print compared " benchmarks, none allocates more often than in the baseline"
}
