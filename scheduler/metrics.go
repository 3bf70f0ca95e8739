package scheduler

import "github.com/prometheus/client_golang/prometheus"

// metrics are what /metrics shows. Their registry is the scheduler's own, so
// that several schedulers can live in one process.
type metrics struct {
	registry                            *prometheus.Registry
	offers, launches, restarts, commits prometheus.Counter
	pending                             prometheus.Gauge
	updates                             *prometheus.CounterVec
	taskgroups                          *prometheus.GaugeVec
	connected                           prometheus.Gauge
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "tandem", Subsystem: "scheduler", Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "tandem", Subsystem: "scheduler", Name: name, Help: help})
	}
	m := &metrics{
		registry:  prometheus.NewRegistry(),
		offers:    counter("offers_total", "Offers received."),
		launches:  counter("launches_total", "Taskgroups handed to Mesos."),
		restarts:  counter("restarts_total", "Taskgroups started again by the restart policy."),
		commits:   counter("store_commits_total", "Transactions of the store."),
		pending:   gauge("pending_taskgroups", "Instances that wait for a place."),
		connected: gauge("connected", "1 while subscribed at the master."),
		updates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "tandem", Subsystem: "scheduler", Name: "status_updates_total", Help: "Status updates received, by state.",
		}, []string{"state"}),
		taskgroups: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "tandem", Subsystem: "scheduler", Name: "taskgroups", Help: "Taskgroups by state.",
		}, []string{"state"}),
	}
	m.registry.MustRegister(m.offers, m.launches, m.restarts, m.commits, m.pending, m.connected, m.updates, m.taskgroups)
	return m
}
