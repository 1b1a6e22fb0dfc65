// SPDX-License-Identifier: Apache-2.0
// The lab's traffic over TCP: partition/aggregate queries (root, worker) and long flows (source, sink, flows).
//
//   weir-traffic worker --host NAME --port P          answers each request at once, on standing connections
//                       [--deadline-us D]             states the deadline of a response on its socket
//                       [--mss M]                     sends no larger segments, options included
//   weir-traffic root   --host NAME --port P --size BYTES --queries Q --gap-ms G --workers "h1=10.0.0.2[/CC] ..."
//                       [--period-ms P]               time from the start of a query to the start of the next;
//                                                     replaces the gap between the end and the next start
//                       [--start-ns T]                time of the first query, the same for several roots
//                       [--fresh]                     connects anew for each query
//                       [--schedstat FILE]            records how long the switch's thread waited for a CPU
//   weir-traffic sink   --host NAME --port P          receives and discards
//   weir-traffic source --host NAME --port P --to ADDRESS            sends as fast as TCP allows
//   weir-traffic flows  --host NAME --port P --plan FILE --start-ns T    sends the flows of the plan for this host
//
// Every role takes --cc (congestion control of its sockets, default reno) and --sample-ms (how often open flows and
// the bytes of a sink are recorded; 0: a sink records nothing). Times are CLOCK_MONOTONIC. On SIGTERM a role writes
// its last records and exits with 0. The folders traffic_dcudp and traffic_udt hold sink, source
// and flows over DCUDP and UDT.
#include "roles.h"

int main(int argc, char **argv)
{
	static const struct role roles[] = {
		{"worker", run_worker}, {"root", run_root},   {"sink", run_sink},
		{"source", run_source}, {"flows", run_flows},
	};
	return run_role(argc, argv, roles, sizeof roles / sizeof *roles);
}
