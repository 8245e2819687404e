// Otlpreceiver is the OTLP receiver of the OpenTelemetry Collector. It prints each request that it gets as one line of OTLP JSON.
// The tests of traces start it. It is a module of its own, so that the Collector is no dependency of the project.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	nooptrace "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
)

func main() {
	if err := receive(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// receive listens at an address for gRPC and at one for HTTP, until its standard input ends.
func receive(grpcAddress, httpAddress string) error {
	ctx := context.Background()
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	config.Protocols.GRPC.GetOrInsertDefault().NetAddr.Endpoint = grpcAddress
	config.Protocols.HTTP.GetOrInsertDefault().ServerConfig.NetAddr.Endpoint = httpAddress
	var mu sync.Mutex
	printer, err := consumer.NewTraces(func(_ context.Context, traces ptrace.Traces) error {
		line, err := (&ptrace.JSONMarshaler{}).MarshalTraces(traces)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		_, err = os.Stdout.Write(append(line, '\n'))
		return err
	})
	if err != nil {
		return err
	}
	settings := receiver.Settings{
		ID: component.NewID(factory.Type()),
		TelemetrySettings: component.TelemetrySettings{
			Logger: zap.NewNop(), MeterProvider: noopmetric.NewMeterProvider(), TracerProvider: nooptrace.NewTracerProvider(),
		},
	}
	traces, err := factory.CreateTraces(ctx, settings, config, printer)
	if err != nil {
		return err
	}
	if err := traces.Start(ctx, host{}); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return traces.Shutdown(ctx)
}

type host struct{}

func (host) GetExtensions() map[component.ID]component.Component { return nil }
