package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// container, process and service wrap a fragment into an artifact that is right otherwise.
func inContainer(fragment string) string {
	return `{"kind":"application","metadata":{"name":"a"},"spec":{"template":{"spec":{"networkMode":"HOST","containers":[{"image":"i"` + comma(fragment) + `}]}}}}`
}

func inProcess(fragment string) string {
	return `{"kind":"process","metadata":{"name":"a"},"spec":{"template":{"spec":{"processes":[{"procName":"p","startCmd":"./s"` + comma(fragment) + `}]}}}}`
}

func inApplication(fragment string) string {
	return `{"kind":"application","metadata":{"name":"a"},"spec":{"template":{"spec":{"containers":[{"image":"i"}]}}}` + comma(fragment) + `}`
}

func inService(fragment string) string {
	return `{"kind":"service","metadata":{"name":"a"},"spec":{"ports":[{"name":"p","servicePort":80}]` + comma(fragment) + `}}`
}

func inTerm(fragment string) string {
	return inApplication(`"constraint":{"intersectionItem":[{"unionData":[{` + fragment + `}]}]}`)
}

func comma(fragment string) string {
	if fragment == "" {
		return ""
	}
	return "," + fragment
}

const (
	atContainer = "spec.template.spec.containers[0]."
	atProcess   = "spec.template.spec.processes[0]."
	atTerm      = "constraint.intersectionItem[0].unionData[0]."
)

// TestRules has, for each rule, artifacts that keep it (want empty) and that break it.
func TestRules(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 64)
	ports := `"ports":[{"name":"web","containerPort":80},{"name":"db_1","containerPort":81}]`
	check := func(s string) string { return ports + `,"healthChecks":[{` + s + `}]` }
	cases := []struct {
		name, src string
		want      []string
	}{
		// Names and labels.
		{"name", `{"kind":"secret","metadata":{"name":"` + long + `","namespace":"a_b"}}`, []string{"metadata.name", "metadata.namespace"}},
		{"name with dots", `{"kind":"secret","metadata":{"name":"a.b"}}`, []string{"metadata.name"}},
		{"label without key", `{"kind":"secret","metadata":{"name":"a","labels":{"":"x"}}}`, []string{"metadata.labels"}},
		{"label key with newline", `{"kind":"secret","metadata":{"name":"a","labels":{"a\nb":"x"}}}`, []string{`metadata.labels["a\nb"]`}},

		// Policies.
		{"restart", inApplication(`"restartPolicy":{"policy":"Sometimes","interval":-1,"backoff":90000,"maxtimes":-2,"hostRetainTime":-1}`),
			[]string{"restartPolicy.policy", "restartPolicy.interval", "restartPolicy.backoff", "restartPolicy.maxtimes", "restartPolicy.hostRetainTime"}},
		{"restart ok", inApplication(`"restartPolicy":{"policy":"Always","interval":5,"backoff":10,"maxtimes":3}`), nil},
		{"restart case", inApplication(`"restartPolicy":{"policy":"always"}`), []string{"restartPolicy.policy"}},
		{"kill", inApplication(`"killPolicy":{"gracePeriod":-1,"drainDelay":-1,"stopSignal":"SIGTREM"}`), []string{"killPolicy.gracePeriod", "killPolicy.drainDelay", "killPolicy.stopSignal"}},
		{"kill ok", inApplication(`"killPolicy":{"gracePeriod":5,"drainDelay":3,"stopSignal":"quit"}`), nil},

		// Lifecycles.
		{"lifecycle", inContainer(`"lifecycle":"sidecars"`), []string{atContainer + "lifecycle"}},
		{"lifecycle in any case", inContainer(`"lifecycle":"Main"`), nil},
		{"only sidecars", inContainer(`"lifecycle":"sidecar"`), []string{"spec.template.spec"}},
		{"init with checks", inContainer(`"lifecycle":"init",` + check(`"type":"TCP","tcp":{"portName":"web"}`)), []string{"spec.template.spec", atContainer + "healthChecks"}},
		{"init process beside a main one", `{"kind":"process","metadata":{"name":"a"},"spec":{"template":{"spec":{"processes":[{"procName":"p","startCmd":"s","lifecycle":"init"},{"procName":"q","startCmd":"s"}]}}}}`, nil},
		{"port of another task", `{"kind":"process","metadata":{"name":"a"},"spec":{"template":{"spec":{"processes":[{"procName":"p","startCmd":"s ${ports.q}"},{"procName":"q","startCmd":"s ${ports.r}","ports":[{"name":"q"}]}]}}}}`,
			[]string{"spec.template.spec.processes[1].startCmd"}},

		// Instances and the taskgroup.
		{"instances", `{"kind":"application","metadata":{"name":"a"},"spec":{"instance":-1,"template":{"spec":{"containers":[{"image":"i"}]}}}}`, []string{"spec.instance"}},
		{"no tasks", `{"kind":"application","metadata":{"name":"a"}}`, []string{"spec.template.spec.containers"}},
		{"no processes", `{"kind":"process","metadata":{"name":"a"}}`, []string{"spec.template.spec.processes"}},
		{"application of processes alone", `{"kind":"application","metadata":{"name":"a"},"spec":{"template":{"spec":{"processes":[{"procName":"p","startCmd":"s"}]}}}}`, []string{"spec.template.spec.processes"}},
		{"one name for a container and a process", `{"kind":"application","metadata":{"name":"a"},"spec":{"template":{"spec":{"containers":[{"name":"x","image":"i"}],"processes":[{"name":"x","procName":"p","startCmd":"s"}]}}}}`, []string{"spec.template.spec.processes[0].name"}},
		{"wrong kind of task", `{"kind":"process","metadata":{"name":"a"},"spec":{"template":{"spec":{"containers":[{"image":"i"}]}}}}`, []string{"spec.template.spec.containers"}},
		{"same name twice", `{"kind":"application","metadata":{"name":"a"},"spec":{"template":{"spec":{"containers":[{"image":"i","name":"x"},{"image":"i","name":"x"}]}}}}`, []string{"spec.template.spec.containers[1].name"}},
		{"network type", `{"kind":"application","metadata":{"name":"a"},"spec":{"template":{"spec":{"networkMode":"HOST|NONE","networkType":"cnx","containers":[{"image":"i"}]}}}}`, []string{"spec.template.spec.networkMode", "spec.template.spec.networkType"}},
		{"limit", `{"kind":"application","metadata":{"name":"a"},"spec":{"template":{"spec":{"netLimit":{"egressLimit":-1},"containers":[{"image":"i"}]}}}}`, []string{"spec.template.spec.netLimit.egressLimit"}},

		// Containers.
		{"image", inContainer(`"image":"-v /:/host"`), []string{atContainer + "image"}},
		{"image forms", inContainer(`"image":"registry.example.com:5000/a/b_c/d:v1.2@sha256:0a"`), nil},
		{"pull policy", inContainer(`"imagePullPolicy":"IfNotPresent|Always"`), []string{atContainer + "imagePullPolicy"}},
		{"credentials", inContainer(`"imagePullUser":"secret::a||b","imagePullPasswd":"secret::a"`), []string{atContainer + "imagePullPasswd"}},
		{"working dir", inContainer(`"workingDir":"here"`), []string{atContainer + "workingDir"}},
		{"parameters", inContainer(`"parameters":[{"key":"ulimit","value":"nofile"},{"key":"shm-size","value":"64m"},{"key":"rm","value":"maybe"},{"key":"ip","value":"x"},{"key":"ipc"},{"value":"x"}]`),
			[]string{atContainer + "parameters[0].value", atContainer + "parameters[1].value", atContainer + "parameters[2].value", atContainer + "parameters[3].value", atContainer + "parameters[4].value", atContainer + "parameters[5].key"}},
		{"parameters ok", inContainer(`"parameters":[{"key":"ulimit","value":"nofile=1024:2048"},{"key":"shm-size","value":"64"},{"key":"P","value":""},{"key":"oom-kill-disable","value":"true"}]`), nil},
		{"unknown parameter", inContainer(`"parameters":[{"key":"ulimits","value":"nofile=1"}]`), []string{atContainer + "parameters[0].key"}},
		{"rights", inContainer(`"user":"a b","pidsLimit":-1,"capabilities":{"add":["NET_ADMINS","CAP_KILL"],"drop":["kill"]},"cpuset":true,"resources":{"requests":{"cpu":"1.5"}}`),
			[]string{atContainer + "user", atContainer + "pidsLimit", atContainer + "capabilities.add[0]", atContainer + "capabilities.drop[0]", atContainer + "resources.requests.cpu"}},
		{"rights ok", inContainer(`"user":"1000:staff","init":true,"readOnlyRoot":true,"pidsLimit":50,"capabilities":{"add":["CAP_NET_RAW"],"drop":["ALL"]},"cpuset":true,"resources":{"limits":{"cpu":"2"}}`), nil},
		{"volumes", inContainer(`"volumes":[{"volume":{"hostPath":"a","mountPath":"b"}},{"volume":{"mountPath":"/a/../b"}},{"volume":{"mountPath":"/c:/d"}},{"volume":{}},{"volume":{"mountPath":"/e"}},{"volume":{"mountPath":"/e"}}]`),
			[]string{atContainer + "volumes[0].volume.hostPath", atContainer + "volumes[0].volume.mountPath", atContainer + "volumes[1].volume.mountPath", atContainer + "volumes[2].volume", atContainer + "volumes[3].volume.mountPath", atContainer + "volumes[5].volume.mountPath"}},
		{"data", inContainer(`"configmaps":[{"name":"","items":[{"type":"env","dataKey":"k","keyOrPath":"A=B"},{"type":"file","dataKey":"k","keyOrPath":"rel"},{"type":"dir","keyOrPath":"/x"}]}],"secrets":[{"secretName":"s","items":[{"type":"file","dataKey":"k","keyOrPath":"/x","user":"a b"}]}]`),
			[]string{atContainer + "configmaps[0].name", atContainer + "configmaps[0].items[0].keyOrPath", atContainer + "configmaps[0].items[1].keyOrPath", atContainer + "configmaps[0].items[2].dataKey", atContainer + "configmaps[0].items[2].type", atContainer + "secrets[0].items[0].user"}},

		// Ports: ranges only.
		{"port ranges", inContainer(`"ports":[{"containerPort":-1},{"containerPort":65536},{"hostPort":65536},{"name":"a b"},{"protocol":"sctp"}]`),
			[]string{atContainer + "ports[0].containerPort", atContainer + "ports[1].containerPort", atContainer + "ports[2].hostPort", atContainer + "ports[3].name", atContainer + "ports[4].protocol"}},
		{"ports ok", inContainer(`"ports":[{"hostPort":-1,"containerPort":1,"protocol":"HTTP"},{"hostPort":0},{"hostPort":65535,"protocol":"UDP","name":"svc_port"}]`), nil},

		// Environment.
		{"env", inContainer(`"env":[{"value":"x"},{"name":"A=B"},{"name":"C","value":"1","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu"}}},{"name":"D","valueFrom":{}},{"name":"E","valueFrom":{"resourceFieldRef":{"resource":"limits.disk"}}}]`),
			[]string{atContainer + "env[0].name", atContainer + "env[1].name", atContainer + "env[2].valueFrom", atContainer + "env[3].valueFrom", atContainer + "env[4].valueFrom.resourceFieldRef.resource"}},

		// Resources.
		{"numbers", inContainer(`"resources":{"limits":{"cpu":"1x","memory":"512Mi","storage":"-1"},"requests":{"cpu":"NaN","memory":"0x10","storage":"1e400"}}`),
			[]string{atContainer + "resources.limits.cpu", atContainer + "resources.limits.memory", atContainer + "resources.limits.storage", atContainer + "resources.requests.cpu", atContainer + "resources.requests.memory", atContainer + "resources.requests.storage"}},
		{"request above limit", inContainer(`"resources":{"limits":{"cpu":"1"},"requests":{"cpu":2}}`), []string{atContainer + "resources.requests.cpu"}},
		{"little memory", inContainer(`"resources":{"limits":{"memory":"4"}}`), []string{atContainer + "resources.limits.memory"}},
		{"little memory in a process", inProcess(`"resources":{"limits":{"memory":"4"}}`), nil},

		// Health checks.
		{"check ok", inContainer(check(`"type":"HTTP","http":{"portName":"web"}`)), nil},
		{"check in lower case", inContainer(check(`"type":"tcp","tcp":{"port":80}`)), nil},
		{"check type", inContainer(check(`"type":"UDP"`)), []string{atContainer + "healthChecks[0].type"}},
		{"check times", inContainer(check(`"type":"TCP","tcp":{"port":80},"intervalSeconds":10,"timeoutSeconds":10,"delaySeconds":-1`)),
			[]string{atContainer + "healthChecks[0].delaySeconds", atContainer + "healthChecks[0].intervalSeconds"}},
		{"check without port", inContainer(check(`"type":"TCP","tcp":{}`)), []string{atContainer + "healthChecks[0].tcp"}},
		{"check of unknown port", inContainer(check(`"type":"HTTP","http":{"portName":"wbe","path":"x","scheme":"ftp"}`)),
			[]string{atContainer + "healthChecks[0].http.path", atContainer + "healthChecks[0].http.portName", atContainer + "healthChecks[0].http.scheme"}},
		{"check without object", inContainer(check(`"type":"COMMAND"`)), []string{atContainer + "healthChecks[0].command"}},
		{"check without http", inContainer(check(`"type":"REMOTE_HTTP"`)), []string{atContainer + "healthChecks[0].http"}},
		{"check without grpc", inContainer(check(`"type":"GRPC"`)), []string{atContainer + "healthChecks[0].grpc"}},
		{"check of grpc without port", inContainer(check(`"type":"grpc","grpc":{"service":"x"}`)), []string{atContainer + "healthChecks[0].grpc"}},
		{"check every second", inContainer(check(`"type":"TCP","tcp":{"port":1},"intervalSeconds":1`)), nil},
		{"check for readiness", inContainer(check(`"type":"TCP","probe":"Readiness","tcp":{"port":1}`)), nil},
		{"check for something else", inContainer(check(`"type":"TCP","probe":"startup","tcp":{"port":1}`)), []string{atContainer + "healthChecks[0].probe"}},
		{"check without tcp", inContainer(check(`"type":"REMOTE_TCP"`)), []string{atContainer + "healthChecks[0].tcp"}},
		{"check without command", inContainer(check(`"type":"COMMAND","command":{}`)), []string{atContainer + "healthChecks[0].command.value"}},

		// Constraints.
		{"unique", inTerm(`"name":"hostname","operate":"UNIQUE"`), nil},
		{"unique with leftovers", inTerm(`"name":"hostname","operate":"UNIQUE","type":3`), nil},
		{"empty item", inApplication(`"constraint":{"intersectionItem":[{}]}`), []string{"constraint.intersectionItem[0].unionData"}},
		{"operator", inTerm(`"name":"x","operate":"Cluster","type":3,"text":{"value":"a"}`), []string{atTerm + "operate"}},
		{"no name", inTerm(`"operate":"CLUSTER","type":3,"text":{"value":"a"}`), []string{atTerm + "name"}},
		{"wrong type", inTerm(`"name":"x","operate":"CLUSTER","type":1,"scalar":{"value":1}`), []string{atTerm + "type"}},
		{"missing text", inTerm(`"name":"x","operate":"CLUSTER","type":3`), []string{atTerm + "text"}},
		{"missing set", inTerm(`"name":"x","operate":"GROUPBY","type":4,"set":{"item":[]}`), []string{atTerm + "set"}},
		{"missing scalar", inTerm(`"name":"x","operate":"GREATER","type":1`), []string{atTerm + "scalar"}},
		{"maxper", inTerm(`"name":"x","operate":"MAXPER","type":3,"text":{"value":"two"}`), []string{atTerm + "text.value"}},
		{"maxper scalar", inTerm(`"name":"x","operate":"MAXPER","type":1,"scalar":{"value":1.5}`), []string{atTerm + "scalar.value"}},
		{"like", inTerm(`"name":"x","operate":"LIKE","type":4,"set":{"item":["web-*","^a+$","[("]}`), []string{atTerm + "set.item[2]"}},
		{"exclude", inTerm(`"name":"role","operate":"EXCLUDE","type":4,"set":{"item":["a:b","c"]}`), []string{atTerm + "name", atTerm + "set.item[1]"}},
		{"toleration", inTerm(`"name":"x","operate":"TOLERATION","type":3,"text":{"value":""}`), nil},

		// Processes.
		{"process", inProcess(``), nil},
		{"process fields", `{"kind":"process","metadata":{"name":"a"},"spec":{"template":{"spec":{"processes":[{"user":"a:b","workPath":"rel","pidFile":"${workPath}/../x","startGracePeriod":-1}]}}}}`,
			[]string{atProcess + "procName", atProcess + "startCmd", atProcess + "pidFile", atProcess + "startGracePeriod", atProcess + "user", atProcess + "workPath"}},
		{"process attributes", inProcess(`"newPrivileges":"deny","umask":"027","nice":-5,"oomScoreAdj":-1000,"ulimits":["nofile=100:200","core=-1"],"pidsLimit":-1,"pidFile":"p","startTimeout":30`), nil},
		{"bad process attributes", inProcess(`"newPrivileges":"no","umask":"8","nice":20,"oomScoreAdj":1001,"ulimits":["files=1","nofile","nofile=2:1","core=0","core=1"],"pidsLimit":-2,"startTimeout":-1`),
			[]string{atProcess + "newPrivileges", atProcess + "nice", atProcess + "oomScoreAdj", atProcess + "pidsLimit", atProcess + "startTimeout", atProcess + "ulimits[0]", atProcess + "ulimits[1]", atProcess + "ulimits[2]", atProcess + "ulimits[4]", atProcess + "umask"}},
		{"program with directory", inProcess(`"procName":"/bin/p"`), []string{atProcess + "procName"}},
		{"uris with checksum and mode", inProcess(`"uris":[{"value":"http://h/x#sha256=` + strings.Repeat("0a", 32) + `","mode":"0644"},{"value":"file:///x#MD5=` + strings.Repeat("0A", 16) + `","mode":"600"},{"value":"http://h/x#sha256=${hostip}"}]`), nil},
		{"bad checksum and mode", inProcess(`"uris":[{"value":"http://h/x#sha256=` + strings.Repeat("0a", 31) + `"},{"value":"file:///x#sha265=` + strings.Repeat("0a", 32) + `","mode":"0999"},{"value":"http://h/x#","mode":"4755"}]`),
			[]string{atProcess + "uris[0].value", atProcess + "uris[1].mode", atProcess + "uris[1].value", atProcess + "uris[2].mode", atProcess + "uris[2].value"}},
		{"uris without a file's name", inProcess(`"uris":[{"value":"http://h"},{"value":"http://h/"},{"value":"https://h/a/.."},{"value":"file:///"},{"value":"http://h/a/"},{"value":"http://h/?a=b"},{"value":"http://h/${namespace}"}]`),
			[]string{atProcess + "uris[0].value", atProcess + "uris[1].value", atProcess + "uris[2].value", atProcess + "uris[3].value", atProcess + "uris[5].value"}},
		{"uris", inProcess(`"uris":[{"value":"ftp://h/x"},{"value":"file://host/x"},{"value":"/x"},{"value":"http://u:p@h/x"},{"value":"http:///x"},{"value":"file:///x","pullPolicy":"Never"},{"value":"https://${hostip}:8080/${namespace}.tar.gz"},{}]`),
			[]string{atProcess + "uris[0].value", atProcess + "uris[1].value", atProcess + "uris[2].value", atProcess + "uris[3].value", atProcess + "uris[4].value", atProcess + "uris[5].pullPolicy", atProcess + "uris[7].value"}},

		// Variables.
		{"process variables", inProcess(`"ports":[{"name":"web"}],"workPath":"${work_base_dir}/x","pidFile":"${workPath}/p","stopCmd":"kill ${pidFile} ${ports.web} ${bcs.hostip} ${run_base_dir} $${HOME} $1"`), nil},
		{"unknown variables", inProcess(`"ports":[{"name":"web"}],"startCmd":"${work_base} ${ports.wbe} ${","env":[{"name":"${NAME}","value":"${bcs.hostname}"}]`),
			[]string{atProcess + "startCmd", atProcess + "startCmd", atProcess + "startCmd", atProcess + "env[0].name", atProcess + "env[0].value"}},
		{"work path of itself", inProcess(`"workPath":"${workPath}","pidFile":"${pidFile}"`), []string{atProcess + "pidFile", atProcess + "workPath", atProcess + "workPath"}},
		{"no pid file", inProcess(`"stopCmd":"kill $(cat ${pidFile})"`), []string{atProcess + "stopCmd"}},
		{"the shell's variables", inContainer(`"command":"sh","args":["-c","echo ${HOME} ${BCS_NODE_IP:-${bcs.hostip}} ${","$${bcs.nothing}"],"env":[{"name":"X","value":"$Y ${Z}"}]`), nil},
		{"unknown bcs variables", inContainer(`"args":["${bcs.nodeip}"],"env":[{"name":"X","value":"${bcs.ports.x}"},{"name":"Y","value":"${bcs."}]`),
			[]string{atContainer + "args[0]", atContainer + "env[0].value", atContainer + "env[1].value"}},

		// Deployments.
		{"strategy", `{"kind":"deployment","metadata":{"name":"a"},"spec":{"selector":{"a":"b"},"strategy":{"type":"Recreate","rollingupdate":{"maxUnavailable":-1,"maxSurge":-1,"rollingOrder":"Any"}}}}`,
			[]string{"spec.strategy.rollingupdate.maxSurge", "spec.strategy.rollingupdate.maxUnavilable", "spec.strategy.rollingupdate.rollingOrder", "spec.strategy.type"}},
		{"nothing to run", `{"kind":"deployment","metadata":{"name":"a"}}`, []string{"spec.template.spec"}},

		// Services.
		{"service", inService(``), nil},
		{"service ports", `{"kind":"service","metadata":{"name":"a"},"spec":{"ports":[{"servicePort":80},{"name":"b","servicePort":0},{"name":"c","servicePort":81,"targetPort":70000,"nodePort":-1,"protocol":"sctp","domainName":"a b","path":"x"},{"name":"c","servicePort":82}]}}`,
			[]string{"spec.ports[0].name", "spec.ports[1].servicePort", "spec.ports[2].domainName", "spec.ports[2].nodePort", "spec.ports[2].path", "spec.ports[2].protocol", "spec.ports[2].targetPort", "spec.ports[3].name"}},
		{"same port twice", `{"kind":"service","metadata":{"name":"a"},"spec":{"ports":[{"name":"a","servicePort":80,"protocol":"http","domainName":"x.y"},{"name":"b","servicePort":80,"protocol":"http","domainName":"z.y"},{"name":"c","servicePort":80,"protocol":"tcp","domainName":"X.y"}]}}`,
			[]string{"spec.ports[2].servicePort"}},
		{"no ports", `{"kind":"service","metadata":{"name":"a"},"spec":{}}`, []string{"spec.ports"}},
		{"headless", `{"kind":"service","apiVersion":"v1","metadata":{"name":"a"},"spec":{"clusterIP":"None"}}`, nil},
		{"addresses", inService(`"clusterIP":["1.2.3.4","1.2.3"]`), []string{"spec.clusterIP[1]"}},
		{"export labels", `{"kind":"service","metadata":{"name":"a","labels":{"BCSGROUP":"a,,b","BCSBALANCE":"random","BCS-WEIGHT-x":"-1"}},"spec":{"type":"None"}}`,
			[]string{"metadata.labels.BCS-WEIGHT-x", "metadata.labels.BCSBALANCE", "metadata.labels.BCSGROUP"}},
		{"v1 ports", `{"kind":"Service","apiVersion":"v1","metadata":{"name":"a"},"spec":{"ports":[{"port":80,"targetPort":"web"},{"port":70000}]}}`,
			[]string{"spec.ports[0].name", "spec.ports[1].name", "spec.ports[1].port"}},

		// Topology.
		{"topology", inService(`"topologyKeys":["kubernetes.io/hostname","rack","*"]`), nil},
		{"star first", inService(`"topologyKeys":["*","rack"]`), []string{"spec.topologyKeys[0]"}},
		{"bad keys", inService(`"topologyKeys":["","/x","a/","a b","x/y/z","rack","rack","` + long + `"]`),
			[]string{"spec.topologyKeys[0]", "spec.topologyKeys[1]", "spec.topologyKeys[2]", "spec.topologyKeys[3]", "spec.topologyKeys[4]", "spec.topologyKeys[6]", "spec.topologyKeys[7]"}},
		{"many keys", inService(`"topologyKeys":[` + manyKeys(17) + `]`), []string{"spec.topologyKeys"}},
		{"sixteen keys", inService(`"topologyKeys":[` + manyKeys(16) + `]`), nil},
		{"local traffic", inService(`"topologyKeys":["*"],"externalTrafficPolicy":"Local"`), []string{"spec.topologyKeys"}},
		{"cluster traffic", inService(`"topologyKeys":["*"],"externalTrafficPolicy":"Cluster"`), nil},
		{"odd traffic", inService(`"externalTrafficPolicy":"local"`), []string{"spec.externalTrafficPolicy"}},

		// Endpoints, configmaps, secrets.
		{"endpoint", `{"kind":"endpoint","metadata":{"name":"a"},"eps":[{},{"nodeIP":"x","containerIP":"1.2.3.4","ports":[{"hostPort":65536}]}]}`, []string{"eps[0]", "eps[1].nodeIP", "eps[1].ports[0].hostPort"}},
		{"configmap", `{"kind":"configmap","metadata":{"name":"a"},"datas":{"a/b":{"content":"!"},"c":{"type":"http","content":"https://x"},"d":{"type":"ftp"},"e":{"type":"dir"},"f":{"content":"aGk="}}}`,
			[]string{`datas["a/b"]`, `datas["a/b"].content`, "datas.c.content", "datas.d.type", "datas.e.type"}},
		{"secret", `{"kind":"secret","metadata":{"name":"a"},"datas":{"..":{"content":"aGk="},"b":{"content":"x y"}}}`, []string{`datas[".."]`, "datas.b.content"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			docs, _, err := Decode(strings.NewReader(c.src), "f", Options{})
			if len(c.want) == 0 {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				if err := Validate(docs[0].Object); err != nil {
					t.Errorf("Validate: %v", err)
				}
				return
			}
			got := map[string]int{}
			for _, p := range errorPaths(t, c.src, Options{}) {
				got[p]++
			}
			want := map[string]int{}
			for _, p := range c.want {
				want[p]++
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%v", diff, err)
			}
		})
	}
}

func manyKeys(n int) string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("%q", fmt.Sprint("key", i))
	}
	return strings.Join(keys, ",")
}

// TestErrorsKeepSecrets puts a secret wherever one may stand, in artifacts that
// are wrong there, and looks for it in the messages.
func TestErrorsKeepSecrets(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	for _, src := range []string{
		`{"kind":"secret","metadata":{"name":"a"},"datas":{"k":{"content":"` + secret + `!"}}}`,
		`{"kind":"secret","metadata":{"name":"a"},"datas":{"k":"` + secret + `"}}`,
		`{"kind":"secret","metadata":{"name":"a"},"datas":"` + secret + `"}`,
		`{"kind":"configmap","metadata":{"name":"a"},"datas":{"k":{"type":"http","content":"http://u:` + secret + `@h"}}}`,
		`{"kind":"configmap","metadata":{"name":"a"},"datas":{"k":{"type":"http","content":"http://u:` + secret + `@h:x"}}}`,
		inContainer(`"imagePullPasswd":["` + secret + `"]`),
		inContainer(`"imagePullPasswd":"secret::` + secret + `"`),
		inContainer(`"env":[{"name":"A","value":"` + secret + `${bcs.x}"}]`),
		inContainer(`"env":[{"name":"A","value":{"` + secret + `":1}}]`),
		inProcess(`"env":[{"name":"A","value":"` + secret + `${"}]`),
		inProcess(`"uris":[{"value":"http://u:` + secret + `@h/x"}]`),
	} {
		_, _, err := Decode(strings.NewReader(src), "f", Options{})
		if err == nil {
			t.Errorf("accepted: %s", src)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("shown: %v", err)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	a, ok := decodeOne(t, `{"metadata":{"name":"web"},"spec":{"template":{"spec":{"containers":[
{"image":"i","ports":[{"containerPort":1},{"hostPort":0,"protocol":"TCP"}],"healthChecks":[{"type":"http","http":{"port":1}},{"type":"TCP","tcp":{"port":1},"intervalSeconds":5}],"resources":{"limits":{"memory":"100"},"requests":{"cpu":"0.1"}}},
{"image":"i"}]}}}}`).(*Application)
	if !ok {
		t.Fatal("not an application")
	}
	want := &Application{
		APIVersion:    "v4",
		Kind:          KindApplication,
		Metadata:      ObjectMeta{Name: "web", Namespace: "defaultGroup"},
		RestartPolicy: RestartPolicy{Policy: "OnFailure"},
		KillPolicy:    KillPolicy{GracePeriod: 1},
		Spec: ApplicationSpec{Instance: 1, Template: PodTemplate{Spec: PodSpec{NetworkMode: "NONE", NetworkType: "cnm", Containers: []Container{
			{
				Name: "web-0", Image: "i", ImagePullPolicy: "IfNotPresent",
				Ports: []Port{{ContainerPort: 1, HostPort: -1, Protocol: "tcp"}, {HostPort: 0, Protocol: "tcp"}},
				HealthChecks: []HealthCheck{
					{Type: "HTTP", DelaySeconds: 10, GracePeriodSeconds: 300, IntervalSeconds: 60, TimeoutSeconds: 20, HTTP: &HTTPCheck{Port: 1, Scheme: "http", Path: "/"}},
					{Type: "TCP", DelaySeconds: 10, GracePeriodSeconds: 300, IntervalSeconds: 5, TimeoutSeconds: 4, TCP: &TCPCheck{Port: 1}},
				},
				Resources: Resources{Requests: ResourceList{CPU: "0.1", Memory: "100", Storage: "64"}, Limits: ResourceList{Memory: "100"}},
			},
			{Name: "web-1", Image: "i", ImagePullPolicy: "IfNotPresent", Resources: Resources{Requests: ResourceList{CPU: "1", Memory: "64", Storage: "64"}}},
		}}}},
	}
	if diff := cmp.Diff(want, a); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	SetDefaults(a)
	if diff := cmp.Diff(want, a); diff != "" {
		t.Errorf("a second time (-want +got):\n%s", diff)
	}

	p, ok := decodeOne(t, `{"metadata":{"name":"db"},"spec":{"instance":0,"template":{"spec":{"processes":[
{"procName":"My_Server","startCmd":"s","uris":[{"value":"file:///x"}]},{"procName":"My_Server","startCmd":"s","startGracePeriod":0}]}}}}`).(*Application)
	if !ok {
		t.Fatal("not a process")
	}
	def := Resources{Requests: ResourceList{CPU: "1", Memory: "64", Storage: "64"}}
	wantSpec := ApplicationSpec{Template: PodTemplate{Spec: PodSpec{Processes: []Process{
		{Name: "my-server", ProcName: "My_Server", StartCmd: "s", StartGracePeriod: 1, WorkPath: DefaultWorkPath, Resources: def,
			URIs: []URI{{Value: "file:///x", OutputDir: "${workPath}", PullPolicy: "IfNotPresent"}}},
		{Name: "my-server-1", ProcName: "My_Server", StartCmd: "s", WorkPath: DefaultWorkPath, Resources: def},
	}}}}
	if diff := cmp.Diff(wantSpec, p.Spec); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	d, ok := decodeOne(t, `{"kind":"deployment","metadata":{"name":"web","labels":{"a":"b"}},"spec":{"template":{"metadata":{"labels":{"a":"c"}},"spec":{"containers":[{"image":"i"}]}}}}`).(*Deployment)
	if !ok {
		t.Fatal("not a deployment")
	}
	if diff := cmp.Diff(Strategy{Type: "RollingUpdate", RollingUpdate: RollingUpdate{MaxUnavailable: 1, MaxSurge: 1, RollingOrder: "CreateFirst"}}, d.Spec.Strategy); diff != "" {
		t.Error(diff)
	}
	app := d.Application("web-v2")
	if app.Kind != KindApplication || app.Spec.Instance != 1 || app.Metadata.Name != "web-v2" || app.PodLabels()["a"] != "c" || d.Metadata.Name != "web" {
		t.Errorf("%+v", app)
	}
	if err := Validate(app); err != nil {
		t.Error(err)
	}
}

func TestTaskNamesAreUnique(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 63)
	s := PodSpec{Containers: []Container{{}, {Name: "web-0"}, {Name: "web-0-0"}, {}}}
	s.setDefaults("web")
	if diff := cmp.Diff([]string{"web-0-0x", "web-0", "web-0-0", "web-3"}, s.TaskNames()); diff != "" {
		t.Error(diff)
	}
	s = PodSpec{Processes: []Process{{ProcName: long}, {ProcName: long}, {ProcName: "..."}}}
	s.setDefaults(long)
	seen := map[string]bool{}
	for _, n := range s.TaskNames() {
		if seen[n] || !isLabel(n) {
			t.Errorf("name %q", n)
		}
		seen[n] = true
	}
}

func TestResourcesInNumbers(t *testing.T) {
	t.Parallel()
	r := Resources{Limits: ResourceList{CPU: "2", Memory: "500"}}
	r.setDefaults()
	req, lim := r.Task()
	if diff := cmp.Diff([]TaskResources{{CPUs: 2, MemMB: 500, DiskMB: 64}, {CPUs: 2, MemMB: 500}}, []TaskResources{req, lim}); diff != "" {
		t.Error(diff)
	}
	env := TaskEnv([]EnvVar{
		{Name: "A", Value: "x${bcs.hostip}"},
		{Name: "B", ValueFrom: &EnvSource{ResourceFieldRef: &ResourceFieldRef{Resource: "limits.cpu"}}},
		{Name: "C", ValueFrom: &EnvSource{ResourceFieldRef: &ResourceFieldRef{Resource: "requests.memory"}}},
	}, r)
	want := []TaskEnvVar{{Name: "A", Value: "x${bcs.hostip}"}, {Name: "B", Value: "2000.000000", Literal: true}, {Name: "C", Value: "500.000000", Literal: true}}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Error(diff)
	}
}

// TestBothKindsInOneTaskgroup: containers and processes may be together in every kind that runs something.
func TestBothKindsInOneTaskgroup(t *testing.T) {
	t.Parallel()
	const spec = `"metadata":{"name":"a"},"spec":{"template":{"spec":{"networkMode":"BRIDGE","containers":[{"image":"i"}],"processes":[{"procName":"p","startCmd":"s"}]}}}}`
	for kind, src := range map[Kind]string{
		KindApplication: `{"kind":"application",` + spec, KindProcess: `{"kind":"process",` + spec, KindDeployment: `{"kind":"deployment",` + spec,
	} {
		// Strict: networkMode has its effect on the containers, so that there is no warning.
		docs, warnings, err := Decode(strings.NewReader(src), "test", Options{Strict: true})
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v, warnings %v", kind, err, warnings)
			continue
		}
		var pod *PodSpec
		switch o := docs[0].Object.(type) {
		case *Application:
			pod = &o.Spec.Template.Spec
		case *Deployment:
			pod = &o.Spec.Template.Spec
			if k := o.Application("a").GetKind(); k != KindApplication {
				t.Errorf("a deployment with containers runs kind %s", k)
			}
		}
		if names := pod.TaskNames(); len(names) != 2 || names[0] != "a" || names[1] != "p" {
			t.Errorf("%s: tasks %v, the container is to be first", kind, names)
		}
	}
	if k := decodeOne(t, `{`+spec).GetKind(); k != KindApplication {
		t.Errorf("without a kind it is %s", k)
	}
}

// TestCommandsWithoutEffectAreTold: what the format has and nothing here does says why.
func TestCommandsWithoutEffectAreTold(t *testing.T) {
	t.Parallel()
	src := inProcess(`"checkCmd":"./check","restartCmd":"./restart","reloadCmd":"./reload","killCmd":"./kill","stopCmd":"./stop","cfgPath":"/etc/x","procGroup":"g"`)
	_, warns, err := Decode(strings.NewReader(src), "test", Options{})
	var got []string
	for _, w := range warns {
		got = append(got, w.Path+": "+w.Message)
	}
	want := []string{
		atProcess + "checkCmd: has no effect; write it as a health check of type COMMAND",
		atProcess + "restartCmd: has no effect: a restart stops the process and runs startCmd in the same directories",
		atProcess + "cfgPath: has no effect; write configmaps or the outputDir of uris",
		atProcess + "procGroup: has no effect: a process has the groups of its user",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
