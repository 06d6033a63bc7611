// SPDX-License-Identifier: MIT
// A client and a server on a node of which everything is as by default, "firstPacket" included, and a Service in front
// of the server as kube-proxy makes one.
#pragma once

#include "tests/netns/lab.hpp"
#include "tests/netns/kube_proxy.hpp"

namespace podlane::test {

class ServiceTest : public LabTest {
  protected:
    explicit ServiceTest(std::uint16_t port, std::uint16_t backend_port, Json keys = Json::object())
        : port_(port), backend_port_(backend_port), keys_(std::move(keys)) {
        keys_["firstPacket"] = "host";
    }
    void prepare() override {
        client_ = add_pod();
        server_ = add_pod();
    }
    Pod add_pod(const Json &more = Json::object()) {
        Json keys = keys_;
        keys.update(more);
        return LabTest::add_pod(keys);
    }
    void rule(const std::string &words) { lab_->node().run(iptables() + " -w " + words); }
    void serve(const Pod &backend, bool nftables = false) {
        service_ = {"a", ip(ipv4() ? "198.18.255.1" : "2001:db8:5e::1"), port_, {addr(backend)}, backend_port_};
        const KubeProxy proxy({service_}, pod_range());
        if (nftables)
            lab_->node().run("nft -f -", proxy.nftables());
        else
            lab_->node().run(iptables() + "-restore", proxy.iptables());
    }
    // The server behind the Service.
    [[nodiscard]] EchoServer serve_echo() {
        serve(server_);
        return {server_.ns(), ipv4(), backend_port_};
    }
    [[nodiscard]] Endpoint cluster_ip() const { return {service_.cluster_ip, service_.port}; }
    [[nodiscard]] Fd connected(const Endpoint &to, Transport transport = Transport::tcp, std::uint16_t port = 0) const {
        Fd socket = open_socket(client_.ns(), transport, ipv4(), {{}, port});
        EXPECT_EQ(connect_to(socket, to), 0);
        return socket;
    }
    static bool answered(const Fd &socket) {
        return send_text(socket, "hello") == 0 && receive(socket).text == "hello";
    }

    Pod client_;
    Pod server_;
    KubeService service_;

  private:
    std::uint16_t port_;
    std::uint16_t backend_port_;
    Json keys_;
};

} // namespace podlane::test
